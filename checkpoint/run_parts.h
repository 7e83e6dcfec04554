// The parts of a checkpoint that continue a run, apart from the parts that describe the model:
// docs/checkpoint_format.md.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace levin {

inline constexpr std::array<std::string_view, 14> kRunParts{
    "callbacks",  "current_model", "data",      "gradients", "loggers", "lr_schedulers", "metrics",
    "optimizers", "options",       "precision", "progress",  "rng",     "strategy",      "train_loader"};

/// Whether a value or a tensor of this name belongs to one of kRunParts, as optimizers.0.0.exp_avg does.
[[nodiscard]] inline bool is_in_run_part(std::string_view name) {
  return std::find(kRunParts.begin(), kRunParts.end(), name.substr(0, name.find('.'))) != kRunParts.end();
}

}  // namespace levin
