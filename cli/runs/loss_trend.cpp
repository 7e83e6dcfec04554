#include "levin/cli/runs/loss_trend.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace levin {

namespace {

constexpr size_t kParts = 10;
constexpr size_t kLeastValues = 20;     // for a trend
constexpr double kFlat = 0.01;          // of the whole fall: less in the last fifth is flat
constexpr double kSpikeDeviations = 8;  // above the running mean
constexpr size_t kSpikeWarmUp = 30;     // values before any can be a spike
constexpr double kRunningKept = 0.95;

struct Part {
  double mean = 0;
  double error = 0;  // standard error of the mean
  int64_t first_step = 0;
  int64_t last_step = 0;
};

Part part_of(const std::vector<double>& values, const std::vector<int64_t>& steps, size_t begin, size_t end) {
  Part part;
  const auto count = static_cast<double>(end - begin);
  for (size_t k = begin; k < end; ++k) part.mean += values[k] / count;
  double squares = 0;
  for (size_t k = begin; k < end; ++k) squares += (values[k] - part.mean) * (values[k] - part.mean);
  part.error = count > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
  part.first_step = steps[begin];
  part.last_step = steps[end - 1];
  return part;
}

void find_spikes(const std::vector<double>& values, const std::vector<int64_t>& steps, LossTrend& trend) {
  double mean = 0;
  double deviation = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const double above = values[k] - mean;
    if (k >= kSpikeWarmUp && above > kSpikeDeviations * deviation && above > 0.1 * std::abs(mean)) {
      ++trend.spikes;
      if (!(trend.highest_spike >= values[k])) {
        trend.highest_spike = values[k];
        trend.highest_spike_step = steps[k];
      }
      continue;  // the running mean is of ordinary values
    }
    const double kept = k < 20 ? static_cast<double>(k) / static_cast<double>(k + 1) : kRunningKept;
    mean = kept * mean + (1 - kept) * values[k];
    deviation = kept * deviation + (1 - kept) * std::abs(values[k] - mean);
  }
}

}  // namespace

LossTrend loss_trend(const MetricSeries& series) {
  LossTrend trend;
  std::vector<double> values;
  std::vector<int64_t> steps;
  for (size_t k = 0; k < series.values.size(); ++k) {
    if (std::isfinite(series.values[k])) {
      values.push_back(series.values[k]);
      steps.push_back(series.steps[k]);
    } else if (trend.nonfinite++ == 0) {
      trend.nonfinite_step = series.steps[k];
    }
  }
  if (values.size() >= kLeastValues) {
    find_spikes(values, steps, trend);
    std::vector<Part> parts;
    for (size_t part = 0; part < kParts; ++part) {
      parts.push_back(part_of(values, steps, part * values.size() / kParts, (part + 1) * values.size() / kParts));
    }
    const auto lowest =
        std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.mean < b.mean; });
    trend.start = part_of(values, steps, 0, std::min<size_t>(values.size() / kParts, 50)).mean;
    trend.end = parts.back().mean;
    trend.lowest = lowest->mean;
    trend.lowest_step = lowest->last_step;
    const double noise = 3 * std::hypot(parts.back().error, lowest->error);
    const double fall = std::max(trend.start - trend.lowest, 0.0);
    const bool rises = parts.back().mean - lowest->mean > std::max({noise, 0.05 * std::abs(lowest->mean), 0.05 * fall});
    size_t flat = kParts - 1;  // the first part since which it has not fallen
    while (flat > 0 && parts[flat - 1].mean - parts.back().mean <= std::max(kFlat * fall, noise)) --flat;
    trend.kind = rises                ? LossTrend::Kind::rising
                 : flat + 3 <= kParts ? LossTrend::Kind::flat
                                      : LossTrend::Kind::falling;
    trend.flat_since = parts[flat].first_step;
  }
  const bool ends_so = !series.values.empty() && !std::isfinite(series.values.back());
  if (ends_so || trend.nonfinite > static_cast<int64_t>(values.size() / 10)) trend.kind = LossTrend::Kind::nonfinite;
  return trend;
}

}  // namespace levin
