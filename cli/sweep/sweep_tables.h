// What "levin sweep" prints about a sweep and its trials.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "levin/cli/sweep/sweep_store.h"
#include "levin/core/options/value.h"

namespace levin {

/// The parameters that another program chose, as JSON: {"optimizer.lr": 0.01}. Every key of the space, within its
/// range.
[[nodiscard]] Parameters read_parameters(const std::string& text, const Space& space, Problems& problems);

/// {"trial": 7, "state": "completed", "value": 0.3, "parameters": {…}, "overrides": […], "folder", "config",
/// "checkpoint", "error"}; the checkpoint holds the weights that the value was measured with, "" if none does.
[[nodiscard]] nlohmann::json trial_json(const SweepStore& store, const Trial& trial);

/// The best trial, its overrides, its configuration and its checkpoint.
[[nodiscard]] std::string best_text(const SweepStore& store, const std::vector<Trial>& trials);

/// "7/40 done, 2 running, 1 failed, best val_loss 0.31 (trial 5), 3 min left"
[[nodiscard]] std::string progress_text(const SweepStore& store, const std::vector<Trial>& trials, int64_t total,
                                        double elapsed);

[[nodiscard]] std::string status_text(SweepStore& store, const std::vector<Trial>& trials, int64_t total);
[[nodiscard]] nlohmann::json status_json(SweepStore& store, const std::vector<Trial>& trials, int64_t total);

}  // namespace levin
