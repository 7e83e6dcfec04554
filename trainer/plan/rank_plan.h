// How many ranks a run has, from devices, num_nodes and strategy, and from what started this process.
#pragma once

#include "levin/core/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// Fills plan.strategy, plan.devices, plan.num_nodes and plan.slots; adds a problem for each option that contradicts
/// another, the strategy, or the world that torchrun, SLURM, MPI or LSF has made, showing both numbers.
void resolve_ranks(const TrainerOptions& options, RunPlan& plan, Problems& problems);

}  // namespace levin
