// Which value each tensor of a trace holds, also after a write through another tensor that shares its memory. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace levin::onnx {

/// Tensors are told apart by their TensorImpl, memory by its StorageImpl. Both are kept from being reused at their
/// address, but not alive.
class TracedMemory {
 public:
  struct Holder {
    int64_t value = -1;
    at::TensorImpl* parent = nullptr;  // whose memory it views; null: its own, or unknown
    size_t call = 0;                   // which made it of its parent
    size_t result = 0;                 // as which of that call's results
    bool is_stale = false;             // its memory was written through another tensor
    std::string lost_write = "";       // which write through a view could not be followed, in words
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes = {};
    std::vector<int64_t> strides = {};
    int64_t offset = 0;
  };

  /// Null if the tensor was not seen.
  [[nodiscard]] Holder* find(const at::Tensor& tensor);
  [[nodiscard]] Holder& at(at::TensorImpl* tensor) { return holders_.at(tensor).holder; }
  /// Another tensor with the same elements of the same memory.
  [[nodiscard]] Holder* find_same_elements(const at::Tensor& tensor);
  /// All tensors that were seen in the memory of this one.
  [[nodiscard]] std::vector<at::TensorImpl*> sharing(const at::Tensor& tensor) const;

  /// The tensor itself; undefined if it is gone.
  [[nodiscard]] at::Tensor tensor(at::TensorImpl* tensor) const;

  /// A tensor that was not seen before, or holds another value from now on, of its own memory unless the result says
  /// otherwise.
  Holder& add(const at::Tensor& tensor, int64_t value);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

  struct Kept {
    Holder holder;
    WeakTensor tensor;
  };

  std::unordered_map<at::TensorImpl*, Kept> holders_ = {};
  std::unordered_map<c10::StorageImpl*, std::vector<at::TensorImpl*>> storages_ = {};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> kept_storages_ = {};
};

}  // namespace levin::onnx
