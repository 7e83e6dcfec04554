// Implements TrainerOptions::nonfinite_loss: rollback. step/window_verdict.h skips the update and requests it.
#pragma once

namespace levin {

struct Run;

/// Restores the weights and the optimizers' state from the newest checkpoint, if requested; training continues with the
/// next batch. Throws Error if there is no checkpoint, or if going back has not helped. Every rank calls it.
void roll_back_if_due(Run& run);

}  // namespace levin
