// Shared by callbacks that monitor a metric.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/value.h"
#include "levin/trainer/metrics.h"

namespace levin {

class Trainer;

/// Whether a smaller or a larger value of the monitored metric is better.
enum class MonitorMode { min, max };
template <>
struct EnumNames<MonitorMode> {
  static constexpr EnumName<MonitorMode> names[] = {{"min", MonitorMode::min}, {"max", MonitorMode::max}};
};

/// Returns whether `value` is better than `other` by more than `margin` (>= 0). NaN is never better.
[[nodiscard]] inline bool is_better(MonitorMode mode, double value, double other, double margin = 0) {
  return mode == MonitorMode::min ? value < other - margin : value > other + margin;
}

/// Returns whether the trainer has a logger to write to; in a fast_dev_run it may have none. Otherwise throws
/// ConfigError naming the callback `who`.
[[nodiscard]] bool has_logger(const Trainer& trainer, const std::string& who);

/// Returns rank 0's metrics on every rank, bitwise identical, so that all ranks make the same decisions; with one rank,
/// returns `own`. Every rank calls it.
[[nodiscard]] Metrics metrics_of_rank_zero(Trainer& trainer, Metrics own);

/// Returns whether rank 0 has measured all these metrics since the last training batch. Every rank calls it.
[[nodiscard]] bool are_measured_now(Trainer& trainer, const std::vector<std::string>& metrics);

}  // namespace levin
