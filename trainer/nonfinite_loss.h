// What a run does about a loss that is nan or inf: TrainerOptions::nonfinite_loss.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/trainer/run.h"

namespace levin {

/// The run stopped before an update with a loss that is nan or inf.
class NonFiniteLossError : public Error {
 public:
  using Error::Error;
};

/// Whether the loss (one element) is finite, or the policy is to ignore it. Else the run stops (throws
/// NonFiniteLossError before the update, naming epoch, batch, step and value), or the window's update is given up: with
/// `rollback`, the weights and the optimizers' state go back to the newest checkpoint, and training goes on with the
/// batches that follow. Reads the value: waits for a device.
[[nodiscard]] bool keep_if_finite(Run& run, const at::Tensor& loss);

}  // namespace levin
