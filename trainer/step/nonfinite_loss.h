// What a run does about a loss that is nan or inf: TrainerOptions::nonfinite_loss.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/trainer/run/run.h"

namespace levin {

/// Of which batches a loss is.
struct LossPlace {
  int64_t epoch = 0;
  int64_t first_batch = 0;  // of its epoch
  int64_t last_batch = 0;
  int64_t global_step = 0;
};
/// Of the running window's losses.
[[nodiscard]] LossPlace loss_place(const Run& run);
/// Throws NonFiniteLossError about a loss that was not used.
[[noreturn]] void stop_for_loss(const LossPlace& place, double value);

/// Whether the losses (one element, or undefined: none) of all ranks are finite, or the policy is to ignore them.
/// Otherwise applies the policy. Reads the value: waits for the device, and with several ranks for the others. Every
/// rank calls it.
[[nodiscard]] bool keep_if_finite(Run& run, const at::Tensor& loss);

/// The same if that does not block; otherwise records the loss for read_window and returns true. See Note [A loss,
/// or a gradient] in loss_scaling.h.
[[nodiscard]] bool keep_or_note(Run& run, const at::Tensor& loss);

/// Applies the policy to a loss that is not finite. The run stops (throws NonFiniteLossError before the update, naming
/// epoch, batch, step and value), or the window's update is skipped; with `rollback` the loop must go back to the
/// newest checkpoint (Fit::rollback_due).
void act_on_nonfinite(Run& run, double value);

/// Sets `flag`, () float32 on the device of `loss`, to 1 if the loss is not finite; else leaves it. Does not block.
void mark_if_not_finite(at::Tensor flag, const at::Tensor& loss);

/// Whether keep_or_note only records losses: if reading a loss makes the host wait, or gradients are read anyway.
[[nodiscard]] bool notes_losses(const Run& run);

}  // namespace levin
