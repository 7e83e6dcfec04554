// The states of loaders in checkpoints. Each rank has a loader, so a checkpoint has a state for each rank.
#pragma once

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Writes the ranks' loader states to `checkpoint`, from before the batch that a resumed run takes first. Every rank
/// calls it; a failing run saves only rank 0's state. Does nothing if no loader has a state.
void put_loader_state(const Run& run, State& checkpoint);

/// Returns the states that the ranks give, in one State. Every rank calls it; in a failing run only this rank's.
[[nodiscard]] State states_of_ranks(const Run& run, const State& own);
/// Returns this rank's state in the result of states_of_ranks; empty if there is none.
[[nodiscard]] State state_of_rank(const Run& run, const State& all);

/// Gives this rank's state in Fit::resumed_loader to the loader that was just made. Logs a warning if the loader has a
/// state and the checkpoint has none for this rank.
void restore_loader_state(Run& run);

}  // namespace levin
