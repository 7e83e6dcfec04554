// A metric's values as a curve: thinned so that a page stays small, and smoothed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "levin/cli/runs/metrics_reader.h"

namespace levin {

/// Finite points in the order in which they were logged.
struct Curve {
  std::vector<int64_t> steps = {};
  std::vector<double> values = {};
  // Where points were left out: the mean of each stretch of the whole curve, at its last step, for smoothing.
  std::vector<int64_t> mean_steps = {};
  std::vector<double> means = {};
  std::vector<int64_t> counts = {};  // points of each stretch
  int64_t points = 0;                // of the whole curve
  int64_t nonfinite = 0;             // values that are nan or infinite, and in none of the lists
  int64_t first_nonfinite_step = -1;

  [[nodiscard]] bool is_thinned() const { return !means.empty(); }
};

/// At most about `most` points: of each stretch the smallest and the largest, and the first and the last of all.
[[nodiscard]] Curve thin_curve(const MetricSeries& series, size_t most);

/// The moving average that TensorBoard draws: s = weight * s + (1 - weight) * value, divided by 1 - weight^n, so that
/// the start is not drawn to 0. `counts`: each value is the mean of so many; empty: of one.
[[nodiscard]] std::vector<double> smoothed_values(std::span<const double> values, std::span<const int64_t> counts,
                                                  double weight);

/// A curve of so few points, one per epoch for example, is drawn as it is, with a dot at each.
inline constexpr size_t kDottedPoints = 30;

/// The smoothed curve, of the means where the curve is thinned; its own values where it has dots.
[[nodiscard]] std::vector<double> smoothed_values(const Curve& curve, double weight);

}  // namespace levin
