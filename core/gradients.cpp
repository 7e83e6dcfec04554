#include "levin/core/gradients.h"

namespace levin {

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> grads;
  for (const auto& param : params) {
    // Without at::Tensor::grad(), which warns of tensors that are not leaves.
    const at::Tensor& grad = param.unsafeGetTensorImpl()->grad();
    if (grad.defined()) grads.push_back(grad);
  }
  return grads;
}

std::vector<std::vector<at::Tensor>> gradients_by_kind(const std::vector<at::Tensor>& params) {
  std::vector<std::vector<at::Tensor>> kinds;
  for (const auto& grad : gradients_of(params)) {
    std::vector<at::Tensor>* same = nullptr;
    for (auto& kind : kinds) {
      if (kind[0].device() == grad.device() && kind[0].dtype() == grad.dtype()) same = &kind;
    }
    if (same == nullptr) same = &kinds.emplace_back();
    same->push_back(grad);
  }
  return kinds;
}

}  // namespace levin
