// Options that are set but have no effect in this run.
#pragma once

#include <string>
#include <vector>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// One sentence for each option: which, why it does nothing, what to do. `own_launcher`: whether this program's own
/// launcher has started the ranks.
[[nodiscard]] std::vector<std::string> idle_options(const TrainerOptions& options, const RunPlan& plan,
                                                    int64_t world_size, bool own_launcher);

}  // namespace levin
