#include "levin/cli/runs/loss_trend.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace levin {

namespace {

constexpr size_t kParts = 10;
constexpr size_t kEndParts = 3;         // in which a loss falls, or is flat
constexpr size_t kLeastValues = 20;     // for a trend
constexpr double kNegligible = 0.01;    // of the whole fall: less is no fall, however little the noise
constexpr double kFlat = 0.1;           // of the whole fall: what noise may hide in a loss that is called flat
constexpr double kNoFall = 2;           // times the noise of a value: a smaller whole fall is none
constexpr double kRounding = 1e-9;      // of the loss
constexpr double kSpikeDeviations = 8;  // above the running mean
constexpr size_t kSpikeWarmUp = 30;     // values before any can be a spike
constexpr double kRunningKept = 0.95;

double mean_of(const std::vector<double>& values, size_t begin, size_t end) {
  double sum = 0;
  for (size_t k = begin; k < end; ++k) sum += values[k];
  return sum / static_cast<double>(end - begin);
}

// The standard deviation of the noise, from neighbouring values, which a trend hardly moves apart: von Neumann's mean
// squared successive difference, halved.
double noise_of(const std::vector<double>& values) {
  double squares = 0;
  for (size_t k = 1; k < values.size(); ++k) squares += (values[k] - values[k - 1]) * (values[k] - values[k - 1]);
  return std::sqrt(squares / 2 / static_cast<double>(values.size() - 1));
}

// The two-sided 95 % quantile of Student's t; within 1 % of the exact one from 4 degrees of freedom on.
double student_t(double freedom) {
  return 1.96 + 2.4 / freedom + 3.2 / (freedom * freedom);
}

// How much the least-squares line through values[begin:] falls from its first value to its last, and by how much noise
// may have changed that.
struct Fall {
  double size = 0;
  double margin = 0;
};

Fall fall_of(const std::vector<double>& values, size_t begin) {
  const auto count = static_cast<double>(values.size() - begin);
  const double middle = (count - 1) / 2;
  const double mean = mean_of(values, begin, values.size());
  double products = 0;
  for (size_t k = begin; k < values.size(); ++k) {
    products += (static_cast<double>(k - begin) - middle) * (values[k] - mean);
  }
  const double spread = count * (count * count - 1) / 12;  // sum of (k - middle)^2
  const double slope = products / spread;
  double squares = 0;
  for (size_t k = begin; k < values.size(); ++k) {
    const double residual = values[k] - mean - slope * (static_cast<double>(k - begin) - middle);
    squares += residual * residual;
  }
  const double error = std::sqrt(squares / (count - 2) / spread);  // of the slope
  return {-slope * (count - 1), student_t(count - 2) * error * (count - 1)};
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

bool rises(const LossTrend& trend, double error_of_tenth, double whole_fall) {
  const double noise = 3 * std::sqrt(2.0) * error_of_tenth;
  return trend.end - trend.lowest > std::max({noise, 0.05 * std::abs(trend.lowest), 0.05 * whole_fall});
}

void judge(const std::vector<double>& values, const std::vector<int64_t>& steps, LossTrend& trend) {
  const auto begin_of = [&](size_t part) { return part * values.size() / kParts; };
  for (size_t part = 0; part < kParts; ++part) {
    const double mean = mean_of(values, begin_of(part), begin_of(part + 1));
    trend.end = mean;
    if (part > 0 && mean >= trend.lowest) continue;
    trend.lowest = mean;
    trend.lowest_step = steps[begin_of(part + 1) - 1];
  }
  trend.start = mean_of(values, 0, std::min<size_t>(begin_of(1), 50));
  const double noise = noise_of(values);
  const double whole_fall = std::max(trend.start - trend.lowest, 0.0);
  if (rises(trend, noise / std::sqrt(static_cast<double>(values.size()) / kParts), whole_fall)) {
    trend.kind = LossTrend::Kind::rising;
    return;
  }
  const double negligible = std::max(kNegligible * whole_fall, kRounding * std::abs(trend.end));
  const bool never_fell = whole_fall < kNoFall * noise;
  const double visible = std::max({kFlat * whole_fall, never_fell ? noise : 0, negligible});
  const auto falls = [&](const Fall& fall) { return fall.size > std::max(fall.margin, negligible); };
  const auto is_flat = [&](const Fall& fall) { return !falls(fall) && fall.margin <= visible; };
  const Fall last = fall_of(values, begin_of(kParts - kEndParts));
  trend.kind = falls(last) ? LossTrend::Kind::falling : is_flat(last) ? LossTrend::Kind::flat : LossTrend::Kind::hidden;
  if (trend.kind != LossTrend::Kind::flat) return;
  size_t since = kParts - kEndParts;
  while (since > 0 && is_flat(fall_of(values, begin_of(since - 1)))) --since;
  trend.flat_since = steps[begin_of(since)];
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
    judge(values, steps, trend);
  }
  const bool ends_so = !series.values.empty() && !std::isfinite(series.values.back());
  if (ends_so || trend.nonfinite > static_cast<int64_t>(values.size() / 10)) trend.kind = LossTrend::Kind::nonfinite;
  return trend;
}

}  // namespace levin
