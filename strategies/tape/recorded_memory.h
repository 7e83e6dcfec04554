// The memory of a recorded step: which storages its operators read and write, without keeping them alive. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace levin {

// Note [Identity of tensors]
// Autograd hands out saved tensors as new objects, so tensors of a recorded step are told apart by what they refer to:
// storage, offset, sizes, strides and type. A storage is identified by a weak reference, which keeps its address from
// being used again but lets its memory go, so that recording needs no more memory than the step itself.

/// A strided tensor by what it refers to; undefined: storage is kNoStorage.
struct TensorPlace {
  static constexpr size_t kNoStorage = SIZE_MAX;
  size_t storage = kNoStorage;
  int64_t offset = 0;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
  c10::ScalarType type = c10::ScalarType::Float;
  bool wrapped_number = false;
  bool operator==(const TensorPlace&) const = default;
};

struct RecordedStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> known;
  c10::intrusive_ptr<c10::StorageImpl> held =
      {};  // memory from before the step, or that the host has written; null: made by it
  size_t bytes = 0;
  size_t first_call = 0;  // that makes or uses it
  size_t last_call = 0;
  size_t writes = 0;  // calls that write it
};

class RecordedMemory {
 public:
  /// Why an operator's tensor cannot be recorded ("has a tensor on …"); "" if it can.
  [[nodiscard]] static std::string problem_of(const at::Tensor& tensor);

  /// The place of an operator's argument. Memory that no operator of the step has written is held, because it was there
  /// before or because the host has written it.
  [[nodiscard]] TensorPlace read(const at::Tensor& tensor, size_t call);
  /// The place of a tensor that the call writes; memory that is seen for the first time is held if `existed`.
  [[nodiscard]] TensorPlace write(const at::Tensor& tensor, size_t call, bool existed);
  /// Memory that an operator makes without writing it.
  void make(const at::Tensor& tensor, size_t call);

  [[nodiscard]] bool knows(const at::Tensor& tensor) const;
  [[nodiscard]] const std::vector<RecordedStorage>& storages() const { return storages_; }

 private:
  [[nodiscard]] size_t index_of(const at::Tensor& tensor, size_t call, bool hold);

  std::vector<RecordedStorage> storages_;
  std::unordered_map<const c10::StorageImpl*, size_t> indices_;
};

}  // namespace levin
