// What stands between backward and the optimizer's step: gradients back to their own size, and the question whether
// they may be used. One read of the device for all of it, once a window, and none on a CPU without a loss scaler.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/trainer/run/run.h"

namespace levin {

// Note [A loss, or a gradient]
// A scaled gradient that overflows is ordinary business of 16-mixed: the step is skipped, the scale falls. A loss that
// is nan or inf is not: it is judged first, by TrainerOptions::nonfinite_loss, and leaves the scale alone. With
// `ignore` nobody judges it, and its gradients count as overflowed. Where reading a loss would make the host wait for a
// device, and wherever gradients have to be read anyway, losses are noted and judged at the end of their window.

/// What the end of a window found.
enum class WindowResult { good, nonfinite_loss, overflow };

/// Throws ConfigError if an optimizer cannot be stepped with a scaled loss.
void check_scaling(Precision& precision, const std::vector<std::shared_ptr<Optimizer>>& optimizers);

/// Judges the losses noted since the last call, and `found_inf` of GradScaler::unscale_ (undefined: not asked). With
/// nonfinite_loss the policy has been followed already (which may throw NonFiniteLossError).
[[nodiscard]] WindowResult read_window(Run& run, const at::Tensor& found_inf);

/// What read_window reads: (2) float32, 1 where the sum of the losses (undefined: none) is not finite, and where
/// `found_inf` says so. Undefined if nobody asks. Waits for nothing.
[[nodiscard]] at::Tensor window_flags(Run& run, const at::Tensor& loss, const at::Tensor& found_inf);
/// Reads those flags, follows the policy for a loss, and says what it was.
[[nodiscard]] WindowResult judge_window(Run& run, const at::Tensor& flags, const at::Tensor& loss);

/// Moves the scale after a window and counts a step that was skipped. Throws Error when the scale has collapsed.
void move_scale(Run& run, bool overflow);

/// The same after a batch of manual optimization, for all optimizers that it stepped; nothing without a scaler.
void move_scale_of_batch(Run& run);

/// Says at the end of a fit how many steps were skipped, if any were.
void report_skipped_steps(Precision& precision, const Progress& progress);

}  // namespace levin
