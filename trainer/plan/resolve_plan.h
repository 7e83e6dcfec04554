// Makes the plan of a run from what its user wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// Decides everything in `options`; throws ConfigError with all problems, each naming the option and the value.
[[nodiscard]] RunPlan resolve_plan(const TrainerOptions& options);

/// Whether 16-mixed was asked for by name where there is no GPU.
[[nodiscard]] bool falls_back_to_bfloat16(const TrainerOptions& options, const RunPlan& plan);

/// How many batches of a loader of `length` (unset: unknown) a limit leaves; kUnlimited if both are open.
/// `option` is named in errors. Throws ConfigError where a share of an unknown length is asked for, or a positive share
/// leaves nothing.
[[nodiscard]] int64_t limited_batches(const BatchLimit& limit, std::optional<int64_t> length,
                                      const std::string& option);

}  // namespace levin
