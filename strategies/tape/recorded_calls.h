// The operators of one step, in their order, with what they were called with, and the memory that they read and write.
// Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "levin/strategies/tape/operator_forms.h"

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

/// Which storages the operators of a step read and write, without keeping them alive.
class RecordedMemory {
 public:
  /// Why an operator's tensor cannot be recorded ("has a tensor on …"); "" if it can.
  [[nodiscard]] static std::string problem_of(const at::Tensor& tensor);

  /// The location of an operator's argument. Memory that no operator of the step has written is held, because it was
  /// there before or because the host has written it.
  [[nodiscard]] TensorPlace read(const at::Tensor& tensor, size_t call);
  /// The location of a tensor that the call writes; memory that is seen for the first time is held if `existed`.
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

/// An operator's argument: a tensor, a list of tensors (undefined ones among them are empty places), or any other
/// value.
using RecordedArgument = std::variant<c10::IValue, TensorPlace, std::vector<TensorPlace>>;

/// How a call is made again.
enum class CallForm {
  unchanged,  // it writes into its arguments, or into memory of its own that is handed on
  into,       // the results are written into their places by its out form
  copy,       // its first argument is copied into the result's place
  constant,   // the result's place gets the numbers that it had
  message,    // unchanged, and waited for where its memory is used; see rank_messages.h
};

struct RecordedCall {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;
  bool grad_mode = false;
  std::vector<RecordedArgument> arguments = {};
  std::vector<TensorPlace> results = {};  // all tensors of them, lists flattened; undefined ones are empty
  CallForm form = CallForm::unchanged;
  std::optional<OutForm> out_form = {};  // of CallForm::into
  at::Tensor constant = {};              // of CallForm::constant

  [[nodiscard]] std::string name() const { return op.schema().name(); }
};

struct RecordedCalls {
  std::vector<RecordedCall> calls = {};
  RecordedMemory memory = {};
};

/// What two recordings of the same step differ in, as a clause that continues a sentence ("aten::mul was called with
/// …"); "" if nothing does. Memory from before the step must be the same, or hold the same numbers.
[[nodiscard]] std::string difference(const RecordedCalls& first, const RecordedCalls& second);

}  // namespace levin
