// Combines the options of a resumed run with those in its checkpoint: see Note [Options of a resumed run].
#pragma once

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Restores the optimizers and schedulers of a fit, and prints which options have changed and what follows.
/// Throws CheckpointError if the checkpoint has different optimizers, schedulers or parameters.
void restore_optimization(Run& run, const State& checkpoint, const std::string& path);

/// Throws as restore_optimization does, and changes nothing.
void check_optimization(Run& run, const State& checkpoint, const std::string& path);

/// Restores only the optimizers, with all saved numbers.
void restore_optimizers(Sharding& sharding, Fit& fit, const State& checkpoint);

}  // namespace levin
