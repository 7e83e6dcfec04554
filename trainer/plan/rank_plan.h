// Computes how many ranks a run has, from devices, num_nodes and strategy, and from the launcher that started this
// process.
#pragma once

#include <string>

#include "levin/core/options/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

class Strategy;

/// Checks manually started ranks once they are connected. Throws ConfigError if the options require a different number
/// of ranks on this node, or more GPUs than it has.
void check_found_place(const TrainerOptions& options, const RunPlan& plan, const World& world);

/// Fills plan.strategy, plan.devices, plan.num_nodes and plan.slots; adds a problem for each option that contradicts
/// another, the strategy, or the world created by torchrun, SLURM, MPI or LSF, showing both numbers.
void resolve_ranks(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// Returns why the memory planner does not support this strategy; "" if it does.
[[nodiscard]] std::string why_not_planned(const Strategy& strategy);

}  // namespace levin
