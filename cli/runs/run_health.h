// Whether a run is healthy: each finding is a sentence with a number, and what to do about it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"

namespace levin {

// --- Which way a loss goes, beneath its noise.
//
// A straight line through the last three tenths tells how much the loss fell there, and its standard error how much of
// that may be noise (Student's t at 95 %). The loss is falling if it fell by more than the noise, and flat if it did
// not and the noise is too small to hide a fall of note. docs/runs_and_reports.md has the numbers.

/// The direction of a loss curve, and its exceptional values.
struct LossTrend {
  enum class Kind {
    too_short,
    falling,
    flat,
    hidden,  // it may be falling or flat: the noise hides which
    rising,
    nonfinite
  };
  Kind kind = Kind::too_short;
  double start = kUnknown;      // mean of the first tenth (at most 50 values)
  double end = kUnknown;        // mean of the last tenth
  double lowest = kUnknown;     // the lowest mean of a tenth
  int64_t lowest_step = -1;     // at the end of that tenth
  int64_t flat_since = -1;      // flat: the step since which it has not fallen
  int64_t nonfinite = 0;        // values that are nan or infinite
  int64_t nonfinite_step = -1;  // the first of them
  int64_t spikes = 0;           // values far above those before them
  double highest_spike = kUnknown;
  int64_t highest_spike_step = -1;
};
[[nodiscard]] LossTrend loss_trend(const MetricSeries& series);

enum class HealthLevel { good, note, watch, bad };

/// One judgement about a run.
struct HealthFinding {
  HealthLevel level = HealthLevel::good;
  std::string topic = "";   // "Training loss"
  std::string text = "";    // what was seen
  std::string remedy = "";  // what to do; "": nothing
};

using AllSeries = std::map<std::string, MetricSeries>;

/// The end of the run, the loss, validation against training, gradient norm, skipped steps, waiting for data. What
/// cannot be judged from what was logged is left out.
[[nodiscard]] std::vector<HealthFinding> run_health(const RunRecord& record, const AllSeries& series);

/// "12 %", below 10 % with one decimal.
[[nodiscard]] std::string percent(double fraction);

/// The names of the curves that are judged; "" if there is none.
[[nodiscard]] std::string training_loss_name(const AllSeries& series);
[[nodiscard]] std::string validation_loss_name(const AllSeries& series);

}  // namespace levin
