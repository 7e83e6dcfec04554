// An input of a segment, kept until backward. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace levin {

class SavedInput {
 public:
  /// Kept like an operator's saved tensor: by the hooks of the enclosing segment, if any, so that nested segments keep
  /// nothing of each other. `offload`: a tensor of another device is copied to page-locked memory of the host, in
  /// parallel with its stream.
  SavedInput(const at::Tensor& input, bool offload);

  /// Returns the input; throws c10::Error if it was changed in place since.
  [[nodiscard]] at::Tensor tensor() const;

 private:
  torch::autograd::SavedVariable saved_;
  at::Tensor on_host_;  // defined: the copy
  c10::Device device_ = c10::Device(c10::kCPU);
  bool requires_grad_ = false;
};

}  // namespace levin
