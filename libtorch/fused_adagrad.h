// The fused kernel of Adagrad. Its learning rate may be a tensor from LibTorch 2.8 on. Checked with
// LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adagrad.h>

#include "levin/libtorch/version.h"

namespace levin {

/// Whether the kernel takes a learning rate of this type, a tensor or a number.
template <class Rate>
concept FusedAdagradRate = requires(at::TensorList tensors, const Rate& lr) {
  at::_fused_adagrad_(tensors, tensors, tensors, tensors, lr, 0.0, 0.0, 0.0, false);
};

/// at::_fused_adagrad_ with either. Throws Error for a tensor before LibTorch 2.8.
template <class Rate>
void fused_adagrad(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps,
                   const Rate& lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const std::optional<at::Tensor>& found_inf) {
  if constexpr (FusedAdagradRate<Rate>) {
    at::_fused_adagrad_(params, grads, sums, steps, lr, lr_decay, weight_decay, eps, maximize, {}, found_inf);
  } else {
    report_old_torch("A recorded step of Adagrad", 2, 8);
  }
}

}  // namespace levin
