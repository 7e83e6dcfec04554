// What TensorBoard's HPARAMS tab reads: a run's hyperparameters, the metrics to show with them, and how the run ended.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/config_node.h"
#include "levin/loggers/log_values.h"

namespace levin {

using HparamValue = std::variant<bool, double, std::string>;
using HparamList = std::vector<std::pair<std::string, HparamValue>>;

/// Nested maps become names with "/" between, lists their text; a quoted scalar stays a text.
[[nodiscard]] HparamList flat_hparams(const ConfigNode& hparams);

[[nodiscard]] std::string session_start_info_record(const HparamList& hparams, const LogPoint& at);
/// The columns of the tab; TensorBoard takes those of one run for all.
[[nodiscard]] std::string experiment_record(const HparamList& hparams, const std::vector<std::string>& metric_tags,
                                            const LogPoint& at);
[[nodiscard]] std::string session_end_info_record(bool success, const LogPoint& at);

}  // namespace levin
