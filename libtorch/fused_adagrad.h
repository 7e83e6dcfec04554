// The fused kernel of Adagrad. Its learning rate may be a tensor from LibTorch 2.8 on. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adagrad.h>

#include "levin/core/options/error.h"
#include "levin/libtorch/version.h"

namespace levin {

/// Whether the kernel takes a learning rate of this type, a tensor or a number.
template <class Rate>
concept FusedAdagradRate = requires(at::TensorList tensors, const Rate& lr) {
  at::_fused_adagrad_(tensors, tensors, tensors, tensors, lr, 0.0, 0.0, 0.0, false);
};

/// Returns the sentence about a LibTorch before 2.8, whose kernel does not take a tensor; "" for a newer one.
[[nodiscard]] inline std::string why_no_adagrad_rate_tensor() {
  return FusedAdagradRate<at::Tensor> ? "" : needs_torch_text("Adagrad's recorded update", 2, 8);
}

/// at::_fused_adagrad_ with either. Throws Error for a tensor before LibTorch 2.8.
template <class Rate>
void fused_adagrad(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps,
                   const Rate& lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const std::optional<at::Tensor>& found_inf) {
  if constexpr (FusedAdagradRate<Rate>) {
    at::_fused_adagrad_(params, grads, sums, steps, lr, lr_decay, weight_decay, eps, maximize, {}, found_inf);
  } else {
    throw Error(why_no_adagrad_rate_tensor());
  }
}

}  // namespace levin
