// How many ranks a run has, from devices, num_nodes and strategy, and from what started this process.
#pragma once

#include <string>

#include "levin/core/error.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

class Strategy;

/// Ranks that were started by hand, once they have met: throws ConfigError where the options want another number of
/// them on this machine than there are, or where they want more GPUs than it has.
void check_found_place(const TrainerOptions& options, const RunPlan& plan, const World& world);

/// Fills plan.strategy, plan.devices, plan.num_nodes and plan.slots; adds a problem for each option that contradicts
/// another, the strategy, or the world that torchrun, SLURM, MPI or LSF has made, showing both numbers.
void resolve_ranks(const TrainerOptions& options, RunPlan& plan, Problems& problems);

/// Why the planner of memory cannot plan steps of this strategy; "": it can.
[[nodiscard]] std::string why_not_planned(const Strategy& strategy);

}  // namespace levin
