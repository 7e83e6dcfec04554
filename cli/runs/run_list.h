// The runs that a table or a report shows: each with its record and its options.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/cli/runs/run_folder.h"
#include "levin/cli/runs/run_options.h"

namespace levin {

struct ListedRun {
  RunRecord record = {};
  RunOptions options = {};
};

/// Reads the folders on several threads. Names are relative to `base` ("": as they are). What run.json does not say is
/// completed: metrics from metrics.csv, the monitored metric from the configuration.
[[nodiscard]] std::vector<ListedRun> read_runs(const std::vector<std::string>& folders, const std::string& base);

/// Whether small values of this metric are good: its mode where it is monitored, else by its name.
[[nodiscard]] bool lower_is_better(const std::string& metric, const RunRecord& record);

/// The best value of a metric in a run, and its step; kUnknown and -1.
[[nodiscard]] std::pair<double, int64_t> best_value(const std::string& metric, const RunRecord& record);

/// The metric that a table shows if none is chosen: what runs monitor, else val_loss, else train_loss; "".
[[nodiscard]] std::string main_metric(const std::vector<ListedRun>& runs);

}  // namespace levin
