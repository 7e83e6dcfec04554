// How many ranks a run has, from devices, num_nodes and strategy, and from what started this process.
#pragma once

#include <string>

#include "levin/core/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

class Strategy;

/// Fills plan.strategy, plan.devices, plan.num_nodes and plan.slots; adds a problem for each option that contradicts
/// another, the strategy, or the world that torchrun, SLURM, MPI or LSF has made, showing both numbers.
void resolve_ranks(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// Why the planner of memory cannot plan steps of this strategy; "": it can.
[[nodiscard]] std::string why_not_planned(const Strategy& strategy);

}  // namespace levin
