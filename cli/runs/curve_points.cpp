#include "levin/cli/runs/curve_points.h"

#include <algorithm>
#include <cmath>

namespace levin {

Curve thin_curve(const MetricSeries& series, size_t most) {
  Curve whole;
  for (size_t k = 0; k < series.values.size(); ++k) {
    if (std::isfinite(series.values[k])) {
      whole.steps.push_back(series.steps[k]);
      whole.values.push_back(series.values[k]);
    } else if (whole.nonfinite++ == 0) {
      whole.first_nonfinite_step = series.steps[k];
    }
  }
  const size_t count = whole.values.size();
  whole.points = static_cast<int64_t>(count);
  if (count <= std::max<size_t>(most, 4)) return whole;
  Curve thinned;
  thinned.points = whole.points;
  thinned.nonfinite = whole.nonfinite;
  thinned.first_nonfinite_step = whole.first_nonfinite_step;
  const auto keep = [&](size_t k) {
    thinned.steps.push_back(whole.steps[k]);
    thinned.values.push_back(whole.values[k]);
  };
  const size_t stretches = std::max<size_t>(most, 4) / 2 - 1;
  for (size_t stretch = 0; stretch < stretches; ++stretch) {
    const size_t begin = stretch * count / stretches;
    const size_t end = (stretch + 1) * count / stretches;
    size_t lowest = begin;
    size_t highest = begin;
    double sum = 0;
    for (size_t k = begin; k < end; ++k) {
      if (whole.values[k] < whole.values[lowest]) lowest = k;
      if (whole.values[k] > whole.values[highest]) highest = k;
      sum += whole.values[k] / static_cast<double>(end - begin);
    }
    thinned.mean_steps.push_back(whole.steps[end - 1]);
    thinned.means.push_back(sum);
    thinned.counts.push_back(static_cast<int64_t>(end - begin));
    const auto [first, second] = std::minmax(lowest, highest);
    if (stretch == 0 && first != 0) keep(0);
    keep(first);
    if (second != first) keep(second);
    if (end == count && second != count - 1) keep(count - 1);
  }
  return thinned;
}

std::vector<double> smoothed_values(std::span<const double> values, std::span<const int64_t> counts, double weight) {
  std::vector<double> smoothed;
  smoothed.reserve(values.size());
  double average = 0;
  double seen = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const double count = counts.empty() ? 1 : static_cast<double>(counts[k]);
    const double kept = std::pow(weight, count);
    seen += count;
    average = kept * average + (1 - kept) * values[k];
    smoothed.push_back(weight <= 0 ? values[k] : average / (1 - std::pow(weight, seen)));
  }
  return smoothed;
}

std::vector<double> smoothed_values(const Curve& curve, double weight) {
  if (curve.values.size() <= kDottedPoints) return curve.values;
  return curve.is_thinned() ? smoothed_values(curve.means, curve.counts, weight)
                            : smoothed_values(curve.values, {}, weight);
}

}  // namespace levin
