#include "levin/core/pinned_memory.h"

namespace levin {

at::Tensor pinned(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return tensor;
  if (!tensor.is_non_overlapping_and_dense()) {
    return tensor.new_empty(tensor.sizes(), tensor.options().pinned_memory(true)).copy_(tensor);
  }
  return tensor.is_pinned() ? tensor : tensor.pin_memory();
}

}  // namespace levin
