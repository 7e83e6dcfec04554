// Between backward and the optimizer's step: unscales gradients, and decides whether they may be used. That takes one
// read from the device per window, and none on a CPU without a loss scaler.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/trainer/run/run.h"

namespace levin {

// Note [A loss, or a gradient]
// A scaled gradient that overflows is normal with 16-mixed: the step is skipped, the scale is reduced. A loss that is
// nan or inf is not normal: TrainerOptions::nonfinite_loss applies first, and the scale does not change. With `ignore`,
// its gradients count as overflowed. Without a scaler the same policy applies to gradients. Where reading a loss would
// make the host wait for a device, and wherever gradients have to be read anyway, losses are recorded and checked at
// the end of their window.

/// The result of the checks at the end of a window.
enum class WindowResult { good, nonfinite, overflow };

/// Throws ConfigError if an optimizer cannot be stepped with a scaled loss.
void check_scaling(Precision& precision, const std::vector<std::shared_ptr<Optimizer>>& optimizers);

/// Checks the losses recorded since the last call, and `found_inf` of GradScaler::unscale_ or found_nonfinite()
/// (undefined: not asked). For a loss or a gradient that is not finite the policy has been applied already (which may
/// throw NonFiniteLossError).
[[nodiscard]] WindowResult read_window(Run& run, const at::Tensor& found_inf);

/// What read_window reads, float32: 1 where the sum of the losses (undefined: none) is not finite, and where
/// `found_inf` says so; without the latter one number (). Undefined if neither is needed. Does not block.
[[nodiscard]] at::Tensor window_flags(Run& run, const at::Tensor& loss, const at::Tensor& found_inf);
/// Reads those flags, applies the policy, and returns the result. With a late check `good`: that of the
/// window before is finished, and this one's is begun; `heard` as for LateCheck::begin.
[[nodiscard]] WindowResult judge_window(Run& run, const at::Tensor& flags, const at::Tensor& loss,
                                        const at::Tensor& heard);

/// Updates the scale after a window and counts a skipped step. Throws Error when the scale has collapsed.
void move_scale(Run& run, bool overflow);

/// The same after a batch of manual optimization, for all optimizers that it stepped; nothing without a scaler.
void move_scale_of_batch(Run& run);

/// Reports at the end of a fit how many steps were skipped, if any were.
void report_skipped_steps(Precision& precision, const Progress& progress);

}  // namespace levin
