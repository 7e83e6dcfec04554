// The options of a run, from hparams.yaml and config.yaml, as one flat list: "lr", "trainer.max_epochs",
// "trainer.callbacks.0.init_args.monitor". And what differs between runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/core/config_node.h"

namespace levin {

/// In the order of the files; values as written, lists of scalars as "[1, 2]".
using FlatOptions = std::vector<std::pair<std::string, std::string>>;

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

/// The options of all runs in the order of their files: hyperparameters, then those of the configuration, without those
/// that repeat a hyperparameter of the same name in every run. The runs must outlive the rows.
[[nodiscard]] std::vector<OptionRow> compare_options(const std::vector<const RunOptions*>& runs);

/// `name` without its first parts, as long as it is no other's: "model.init_args.hidden" is "hidden".
[[nodiscard]] std::vector<std::string> short_option_names(const std::vector<std::string>& names);

}  // namespace levin
