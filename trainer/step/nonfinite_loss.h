// What a run does about a loss, or a gradient of a finite loss, that is nan or inf: TrainerOptions::nonfinite_loss.
//
// Note [A finite loss with a gradient that is not finite]
// sqrt, norm and pow have such gradients at 0, also where where() leaves the result out, and so has a sum that
// overflows in backward. An update with one element of nan makes the parameter nan for good, and clipping by norm all
// parameters. So gradients are judged once per window, after they are reduced and unscaled, before
// on_before_optimizer_step, clipping and the update; where the user's code runs in between, once more after it. On a
// CPU the host reads them, once; on a device, and in a recorded step, one operator sets a flag, which is read with the
// flag of the loss. With a loss scaler such a gradient counts as an overflow.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/trainer/run/run.h"

namespace levin {

/// The batches from which a loss, or a gradient, was computed.
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
/// Throws NonFiniteLossError about a gradient that was not used.
[[noreturn]] void stop_for_gradient(const LossPlace& place);

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

/// Returns whether gradients are judged: unless the policy ignores them, or a loss scaler does it.
[[nodiscard]] bool checks_gradients(const Run& run);

/// Returns what read_window takes: () float32 on the run's device, 1 if a gradient of `optimizer` on this rank is nan
/// or inf, else 0; undefined if it need not be judged. Does not block on a device.
[[nodiscard]] at::Tensor found_nonfinite(const Run& run, const Optimizer& optimizer);

/// Sets `flag`, () float32, to 1 if a gradient of `optimizer` is nan or inf; else leaves it. `one`: () float32 on the
/// same device. Does not block.
void mark_nonfinite_gradients(at::Tensor flag, const at::Tensor& one, const Optimizer& optimizer);

/// Same as act_on_nonfinite, for a gradient.
void act_on_nonfinite_gradient(Run& run);

/// Whether a gradient of `optimizer` on this rank is nan or inf. Blocks on a device.
[[nodiscard]] bool has_nonfinite_gradient(const Run& run, const Optimizer& optimizer);

/// Same as act_on_nonfinite, for a gradient that on_before_optimizer_step or configure_gradient_clipping has made nan
/// or inf on some rank.
void act_on_spoilt_gradient(Run& run);

/// Returns whether `gradients`, of a window that is still open, are finite on all ranks, so that a checkpoint may
/// contain them. Otherwise applies the policy now; while the run is failing the window is only marked as one without an
/// update. Every rank, unless the run is failing.
[[nodiscard]] bool keep_window_gradients(Run& run, const State& gradients);

}  // namespace levin
