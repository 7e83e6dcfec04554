// Resolves periods: a fraction of the run becomes a time if only max_time limits the run.
#pragma once

#include <string>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// Resolves val_check_interval and check_val_every_n_epoch. Adds a problem if the two contradict each other, or if the
/// interval is a fraction of a run without an end.
void resolve_validation(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// Returns `period`, of the option `path`, resolved for a run with these limits. Throws ConfigError for a fraction of a
/// run without an end.
[[nodiscard]] Period resolve_period(const Period& period, const TrainerOptions& options, const RunPlan& plan,
                                    const std::string& path);

}  // namespace levin
