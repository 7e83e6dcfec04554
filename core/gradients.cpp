#include "levin/core/gradients.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace levin {

std::vector<at::Tensor> distinct(std::vector<at::Tensor> tensors) {
  std::vector<const c10::TensorImpl*> sorted;
  for (const auto& tensor : tensors) sorted.push_back(tensor.unsafeGetTensorImpl());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  std::erase_if(tensors, [&](const at::Tensor& tensor) { return !seen.insert(tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> grads;
  for (const auto& param : params) {
    // Without at::Tensor::grad(), which warns of tensors that are not leaves.
    const at::Tensor& grad = param.unsafeGetTensorImpl()->grad();
    if (grad.defined()) grads.push_back(grad);
  }
  return distinct(std::move(grads));
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
