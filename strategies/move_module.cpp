#include "levin/strategies/move_module.h"

#include <ATen/ops/_has_compatible_shallow_copy_type.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <mutex>

namespace levin {

// What LibTorch's set_data does, without its list of backends that may be exchanged: tensors of all of them are of one
// class, TensorImpl. The node that accumulates gradients knows the old device, so autograd makes another.
void set_tensor_data(at::Tensor& tensor, const at::Tensor& data) {
  if (at::_has_compatible_shallow_copy_type(tensor, data)) {
    tensor.set_data(data);
    return;
  }
  if (auto* meta = torch::autograd::impl::get_autograd_meta(tensor)) {
    const std::lock_guard lock(meta->mutex_);
    meta->grad_accumulator_.reset();
  }
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

namespace {

// Module::to exchanges the memory of LibTorch's own backends.
bool needs_help(const at::Tensor& tensor, at::Device device) {
  constexpr auto kOutside = c10::DeviceType::PrivateUse1;
  return tensor.device() != device && (tensor.device().type() == kOutside || device.type() == kOutside);
}

}  // namespace

void move_module(torch::nn::Module& module, at::Device device) {
  const at::NoGradGuard no_grad;
  for (auto tensors : {module.parameters(), module.buffers()}) {
    for (at::Tensor& tensor : tensors) {
      if (needs_help(tensor, device)) set_tensor_data(tensor, tensor.to(device));
    }
  }
  module.to(device);
}

}  // namespace levin
