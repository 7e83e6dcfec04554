// Whether a run is healthy: each finding is a sentence with a number, and what to do about it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"

namespace levin {

enum class HealthLevel { good, note, watch, bad };

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

/// The names of the curves that are judged; "" if there is none.
[[nodiscard]] std::string training_loss_name(const AllSeries& series);
[[nodiscard]] std::string validation_loss_name(const AllSeries& series);

}  // namespace levin
