#include "levin/recompute/saved_input.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "levin/recompute/saved_tensors.h"

namespace levin {

namespace {

// Page-locked, so that the copy is asynchronous, where the device's backend has such memory.
at::Tensor host_memory_for(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU);
  const auto format = tensor.suggest_memory_format();
  try {
    return at::empty(tensor.sizes(), options.pinned_memory(true), format);
  } catch (const c10::Error&) {
    return at::empty(tensor.sizes(), options, format);
  }
}

at::Tensor copied_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = host_memory_for(tensor);
  copy.copy_(tensor.detach(), /*non_blocking=*/copy.is_pinned());
  return copy;
}

}  // namespace

// A leaf (the batch, a weight) is kept by its owner; tensors taken by the hooks of an enclosing segment are not kept.
SavedInput::SavedInput(const at::Tensor& input, bool offload) {
  const bool on_host = !input.defined() || input.is_cpu();
  if (!offload || on_host || input.is_leaf() || SavedTensorScope::active()) {
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
