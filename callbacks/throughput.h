// Rates over the latest batches of a run, under Lightning's names.
//
//   device/batches_per_sec, device/samples_per_sec, device/items_per_sec, device/flops_per_sec, device/mfu
//   and without "device/" for all devices together, if there are several
//   time, batches, samples, lengths: totals
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "levin/trainer/metrics.h"

namespace levin {

/// One device's totals at the end of a batch.
struct ThroughputPoint {
  double seconds = 0;
  int64_t batches = 0;
  int64_t samples = 0;
  std::optional<int64_t> lengths = std::nullopt;  // sum over batches of the items in one of their samples
  std::optional<double> flops = std::nullopt;
};

class Throughput {
 public:
  /// `window_size`: number of points for a rate, at least 2. `available_flops`: the device's peak, per second.
  Throughput(int64_t window_size, std::string separator, int64_t world_size, std::optional<double> available_flops);

  void update(const ThroughputPoint& point);
  /// Totals, and rates once there are two points.
  /// Lightning computes rates once the window is full; here they are available at once, for short runs.
  [[nodiscard]] Metrics compute() const;

 private:
  int64_t window_size_;
  std::string separator_;
  int64_t world_size_;
  std::optional<double> available_flops_;
  std::deque<ThroughputPoint> window_ = {};
};

}  // namespace levin
