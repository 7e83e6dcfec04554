// TrainerOptions::nonfinite_loss: rollback. What judges a loss (step/nonfinite_loss.h) gives its update up and asks for
// it.
#pragma once

namespace levin {

struct Run;

/// If it was asked for: the weights and the optimizers' state go back to the newest checkpoint, and training continues
/// with the batches that follow. Throws Error where there is no checkpoint, or where going back has not helped. Every
/// rank.
void roll_back_if_due(Run& run);

}  // namespace levin
