// The tensors that a recorded training step finds in place. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

#include "levin/trainer/lightning_module.h"

namespace levin {

/// The module's parameters and buffers, and of `trained`, the optimizer's parameters, those that are not registered.
[[nodiscard]] inline std::vector<at::Tensor> tensors_of_step(const LightningModule& module,
                                                             const std::vector<at::Tensor>& trained) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& some : {module.parameters(), trained, module.buffers()}) {
    for (const at::Tensor& tensor : some) {
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) tensors.push_back(tensor);
    }
  }
  return tensors;
}

}  // namespace levin
