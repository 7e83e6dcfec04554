// Gradient clipping, as torch.nn.utils. No device waits for another: the norm stays a tensor until something reads it.
//
//   const at::Tensor norm = clip_grad_norm_(optimizer.parameters(), 1.0);
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <vector>

namespace levin {

/// Scales all gradients so that the norm of all of them together is at most `max_norm`; returns the norm before, a
/// scalar tensor on the device of the first gradient (0 on the CPU if there is none). `norm_type` may be infinity.
/// With `error_if_nonfinite` it waits for the device and throws Error if the norm is inf or nan.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& params, double max_norm, double norm_type = 2,
                           bool error_if_nonfinite = false);

/// The norm of all gradients together, as clip_grad_norm_ returns it.
[[nodiscard]] at::Tensor get_total_norm(const std::vector<at::Tensor>& params, double norm_type = 2);

/// Scales all gradients by max_norm / `total_norm` if that is below 1: clip_grad_norm_ for a known norm, possibly of
/// more gradients than these.
void clip_grads_with_norm_(const std::vector<at::Tensor>& params, double max_norm, const at::Tensor& total_norm);

/// Clamps every element of every gradient to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<at::Tensor>& params, double clip_value);

}  // namespace levin
