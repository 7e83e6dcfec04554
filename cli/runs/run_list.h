// The runs that a table or a report shows: each with its record and its options.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/cli/runs/run_folder.h"
#include "levin/core/options/config_node.h"

namespace levin {

// --- The options of a run, from hparams.yaml and config.yaml, as one flat list: "lr", "trainer.max_epochs",
// "trainer.callbacks.0.init_args.monitor". And what differs between runs.

/// In the order of the files; values as written, lists of scalars as "[1, 2]".
using FlatOptions = std::vector<std::pair<std::string, std::string>>;

/// The options of a run as its files have them.
struct RunOptions {
  FlatOptions hparams = {};
  FlatOptions config = {};
  std::vector<std::string> problems = {};  // a file that could not be read, with the place
};

[[nodiscard]] RunOptions read_run_options(const std::string& folder);

[[nodiscard]] FlatOptions flattened(const ConfigNode& node);

/// The value of `name`; null pointer if there is none.
[[nodiscard]] const std::string* find_option(const FlatOptions& options, const std::string& name);

/// One option with its value in each run; null pointer where a run has none.
struct OptionRow {
  std::string name = "";
  std::vector<const std::string*> values = {};
  bool differs = false;
};

/// The options of all runs in the order of their files: hyperparameters, then the configuration, without options
/// that repeat a hyperparameter of the same name in every run. The runs must outlive the rows.
[[nodiscard]] std::vector<OptionRow> compare_options(const std::vector<const RunOptions*>& runs);

/// `name` without its first parts, unless the shorter name would be ambiguous: "model.init_args.hidden" is "hidden".
[[nodiscard]] std::vector<std::string> short_option_names(const std::vector<std::string>& names);

/// A run with its record and its options.
struct ListedRun {
  RunRecord record = {};
  RunOptions options = {};
};

/// Reads the folders on several threads. Names are relative to `base` ("": unchanged). What run.json lacks is
/// completed: metrics from metrics.csv, the monitored metric from the configuration.
[[nodiscard]] std::vector<ListedRun> read_runs(const std::vector<std::string>& folders, const std::string& base);

/// Whether small values of this metric are good: its mode where it is monitored, else by its name.
[[nodiscard]] bool lower_is_better(const std::string& metric, const RunRecord& record);

/// The best value of a metric in a run, and its step; kUnknown and -1.
[[nodiscard]] std::pair<double, int64_t> best_value(const std::string& metric, const RunRecord& record);

/// The metric that a table shows if none is chosen: what runs monitor, else val_loss, else train_loss; "".
[[nodiscard]] std::string main_metric(const std::vector<ListedRun>& runs);

}  // namespace levin
