// Creates the replicas of the run's module, one on each slot: strategies dp and dp_balanced.
#pragma once

namespace levin {

struct Run;

// Note [How a replica of a LightningModule is made]
// It is made by the module's own clone(), if there is one; otherwise, if the module was made by name (a run file), from
// the same class and options once more. In both cases setup() and configure_model() are called on it as on the module,
// and before every step it gets the module's weights, buffers and modes: only non-tensor members set by the constructor
// and these two functions are its own.

/// Creates the strategy's replicas, if it has more than one slot. Called after the module is on its device and all its
/// layers exist. Throws ConfigError with instructions for clone() if the class cannot be copied, and for manual
/// optimization.
void make_replicas(Run& run);

}  // namespace levin
