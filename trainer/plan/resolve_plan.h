// Makes the plan of a run from its options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

class Trainer;

/// Returns the plan for `options`. Throws ConfigError with all problems, each naming the option and the value.
[[nodiscard]] RunPlan resolve_plan(const TrainerOptions& options);

/// Returns whether 16-mixed was requested by name without a GPU.
[[nodiscard]] bool falls_back_to_bfloat16(const TrainerOptions& options, const RunPlan& plan);

/// Returns how many batches of a loader of `length` (unset: unknown) remain under a limit; kUnlimited if both are open.
/// `option` is named in errors. Throws ConfigError for a fraction of an unknown length, and for a positive fraction
/// that leaves no batch.
[[nodiscard]] int64_t limited_batches(const BatchLimit& limit, std::optional<int64_t> length,
                                      const std::string& option);

/// Returns why a fit that has not failed ended: the reason of the stop that was requested, "max_epochs (3) is reached",
/// "max_steps (100) is reached", or "there are no batches".
[[nodiscard]] std::string end_reason(const Trainer& trainer);

/// Returns one sentence for each option that is set but has no effect in this run: which one, why, and what to do.
/// `own_launcher`: whether Levin's launcher has started the ranks.
[[nodiscard]] std::vector<std::string> idle_options(const TrainerOptions& options, const RunPlan& plan,
                                                    int64_t world_size, bool own_launcher);

}  // namespace levin
