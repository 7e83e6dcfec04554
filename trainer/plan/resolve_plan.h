// Makes the plan of a run from its options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// Decides everything in `options`; throws ConfigError with all problems, each naming the option and the value.
[[nodiscard]] RunPlan resolve_plan(const TrainerOptions& options);

/// Whether 16-mixed was requested by name without a GPU.
[[nodiscard]] bool falls_back_to_bfloat16(const TrainerOptions& options, const RunPlan& plan);

/// How many batches of a loader of `length` (unset: unknown) remain under a limit; kUnlimited if both are open.
/// `option` is named in errors. Throws ConfigError for a share of an unknown length, and for a positive share that
/// leaves no batch.
[[nodiscard]] int64_t limited_batches(const BatchLimit& limit, std::optional<int64_t> length,
                                      const std::string& option);

}  // namespace levin
