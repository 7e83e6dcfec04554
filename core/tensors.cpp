#include "levin/core/tensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace levin {

std::string shape_text(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "(" + text + ")";
}

std::string dtype_name(at::ScalarType type) {
  std::string name(c10::getDtypeNames(type).first);  // a string, or from LibTorch 2.15 on a view of one
  return name.empty() ? c10::toString(type) : name;
}

bool bitwise_equal(const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined()) return false;
  if (!one.defined()) return true;
  if (one.sizes() != other.sizes() || one.scalar_type() != other.scalar_type()) return false;
  const at::Tensor left = one.detach().contiguous(), right = other.detach().contiguous();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

at::Tensor pinned(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return tensor;
  if (!tensor.is_non_overlapping_and_dense()) {
    return tensor.new_empty(tensor.sizes(), tensor.options().pinned_memory(true)).copy_(tensor);
  }
  return tensor.is_pinned() ? tensor : tensor.pin_memory();
}

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
