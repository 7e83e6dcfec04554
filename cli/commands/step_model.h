// How long a training step takes on many devices, from what it takes on one: closed forms, so that a cluster can be
// judged before it is paid for. docs/planning.md derives them.
#pragma once

#include <cstdint>

namespace levin {

/// A way for messages: sending b bytes takes latency + b / bandwidth.
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

/// One replica's step on one device, which every device takes with a batch of its own.
struct StepCost {
  double forward = 0;                        // seconds
  double backward = 0;                       // seconds
  double optimizer = 0;                      // seconds, for all parameters
  double other = 0;                          // seconds: data, logging, …
  double bytes = 0;                          // of all parameters, and of all gradients
  double bucket_bytes = 25.0 * 1024 * 1024;  // ddp reduces so many at a time
  int64_t units = 1;                         // fsdp gathers the parameters in so many parts

  [[nodiscard]] double alone() const { return forward + backward + optimizer + other; }
};

struct StepPrediction {
  double step = 0;           // seconds
  double communication = 0;  // seconds that messages take, hidden behind computing or not
  double efficiency = 0;     // of the throughput that devices without messages would have
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
