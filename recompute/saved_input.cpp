#include "levin/recompute/saved_input.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "levin/recompute/saved_tensors.h"

namespace levin {

namespace {

at::Tensor copied_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto options = tensor.options().device(at::kCPU).pinned_memory(true);
  at::Tensor copy = at::empty(tensor.sizes(), options, tensor.suggest_memory_format());
  copy.copy_(tensor.detach(), /*non_blocking=*/true);
  return copy;
}

}  // namespace

// A leaf (the batch, a weight) is kept by its owner; tensors taken by the hooks of an enclosing segment are not kept.
SavedInput::SavedInput(const at::Tensor& input, bool offload) {
  const bool on_gpu = input.defined() && input.is_cuda();
  if (!offload || !on_gpu || input.is_leaf() || SavedTensorScope::active()) {
    saved_ = torch::autograd::SavedVariable(input, /*is_output=*/false);
    return;
  }
  on_host_ = copied_to_host(input);
  device_ = input.device();
  requires_grad_ = input.requires_grad();
}

at::Tensor SavedInput::tensor() const {
  if (!on_host_.defined()) return saved_.unpack();
  const at::NoGradGuard no_grad;
  return on_host_.to(device_, /*non_blocking=*/true).set_requires_grad(requires_grad_);
}

}  // namespace levin
