// How a trial is started: its words, its variables, and the cores and GPUs of its slot.
#pragma once

#include "levin/cli/sweep/sweep_store.h"
#include "levin/cli/sweep/trial_process.h"

namespace levin {

/// `program`: the levin tool. `alone`: the trial does not share the machine's cores and GPUs with others of the sweep.
/// Throws Error if CUDA_VISIBLE_DEVICES names fewer GPUs than the slots need.
[[nodiscard]] TrialCommand trial_command(const SweepStore& store, const std::string& program, const Trial& trial,
                                         bool alone);

}  // namespace levin
