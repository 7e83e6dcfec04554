// Closed formulas for the time of a training step on many devices, given the time on one, so that a cluster can be
// evaluated before it is bought. docs/planning.md derives them.
#pragma once

#include <cstdint>

namespace levin {

/// A link: sending b bytes takes latency + b / bandwidth.
struct Link {
  double bandwidth = 0;  // bytes a second
  double latency = 0;    // seconds
};

struct Cluster {
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  Link inside = {};   // between two devices of a node
  Link between = {};  // of a whole node to others

  [[nodiscard]] int64_t devices() const { return nodes * devices_per_node; }
};

/// One replica's step on one device; every device takes it with its own batch.
struct StepCost {
  double forward = 0;                        // seconds
  double backward = 0;                       // seconds
  double optimizer = 0;                      // seconds, for all parameters
  double other = 0;                          // seconds: data, logging, …
  double bytes = 0;                          // of all parameters, and of all gradients
  double bucket_bytes = 25.0 * 1024 * 1024;  // ddp reduces this many at a time
  int64_t units = 1;                         // fsdp gathers the parameters in this many parts

  [[nodiscard]] double alone() const { return forward + backward + optimizer + other; }
};

struct StepPrediction {
  double step = 0;           // seconds
  double communication = 0;  // seconds of communication, overlapped or not
  double efficiency = 0;     // relative to the throughput without communication
};

/// Seconds to make `bytes` on every device their sum over all devices, or to gather parts that are `bytes` together: a
/// ring inside each node, then rings between equal devices of the nodes, which share each node's link. A ring of n
/// sends (n - 1) messages of 1/n (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009); reduce-scatter
/// and all-gather take the same time, and all-reduce is one after the other.
[[nodiscard]] double all_gather_seconds(double bytes, const Cluster& cluster);
[[nodiscard]] double all_reduce_seconds(double bytes, const Cluster& cluster);

/// Gradients are reduced bucket by bucket while backward computes the rest (Li et al., VLDB 2020).
[[nodiscard]] StepPrediction predict_ddp(const StepCost& cost, const Cluster& cluster);

/// ZeRO's stages (Rajbhandari et al., 2020). 1 and 2: gradients are scattered during backward, each device updates its
/// share, and the parameters are gathered afterwards. 3: each unit's parameters are gathered before its forward and
/// again before its backward, the next one's while this one computes.
[[nodiscard]] StepPrediction predict_fsdp(const StepCost& cost, const Cluster& cluster, int stage);

}  // namespace levin
