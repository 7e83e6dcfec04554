// What a segment keeps of one input until backward. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace levin {

class SavedInput {
 public:
  /// Kept as an operator's tensor is: by the hooks of the segment around this one, if any, so that nested segments keep
  /// nothing of each other. `offload`: a tensor of a GPU is copied to page-locked memory of the host, beside what
  /// follows on its stream.
  SavedInput(const at::Tensor& input, bool offload);

  /// The input once more; throws c10::Error if it was changed in place since.
  [[nodiscard]] at::Tensor tensor() const;

 private:
  torch::autograd::SavedVariable saved_;
  at::Tensor on_host_;  // defined: the copy
  c10::Device device_ = c10::Device(c10::kCPU);
  bool requires_grad_ = false;
};

}  // namespace levin
