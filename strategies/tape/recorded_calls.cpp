#include "levin/strategies/tape/recorded_calls.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

TensorPlace place_in(size_t storage, const at::Tensor& tensor) {
  return {.storage = storage,
          .offset = tensor.storage_offset(),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .type = tensor.scalar_type(),
          .wrapped_number = is_wrapped_number(tensor)};
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

std::string RecordedMemory::problem_of(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) return "has a tensor on " + tensor.device().str();
  if (tensor.layout() != at::kStrided) return "has a tensor that is not strided";
  if (tensor.is_quantized() || tensor.is_conj() || tensor.is_neg()) return "has a quantized or conjugated tensor";
  const bool is_owned = tensor.nbytes() == 0 || tensor.storage().data_ptr().get_context() != nullptr;
  if (!is_owned) return "has memory that LibTorch does not own (torch::from_blob), and that may be gone in a replay";
  return "";
}

size_t RecordedMemory::index_of(const at::Tensor& tensor, size_t call, bool hold) {
  c10::StorageImpl* storage = storage_of(tensor);
  const auto [found, is_new] = indices_.try_emplace(storage, storages_.size());
  if (is_new) {
    const auto owned = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
    storages_.push_back({.known = c10::weak_intrusive_ptr<c10::StorageImpl>(owned),
                         .held = hold ? owned : c10::intrusive_ptr<c10::StorageImpl>(),
                         .first_call = call});
  }
  RecordedStorage& known = storages_[found->second];
  known.bytes = std::max(known.bytes, storage->nbytes());
  known.last_call = call;
  return found->second;
}

TensorPlace RecordedMemory::read(const at::Tensor& tensor, size_t call) {
  const size_t index = index_of(tensor, call, /*hold=*/true);
  RecordedStorage& known = storages_[index];
  if (known.writes == 0 && known.held == nullptr) {
    known.held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(tensor));
  }
  return place_in(index, tensor);
}

TensorPlace RecordedMemory::write(const at::Tensor& tensor, size_t call, bool existed) {
  const size_t index = index_of(tensor, call, existed);
  ++storages_[index].writes;
  return place_in(index, tensor);
}

void RecordedMemory::make(const at::Tensor& tensor, size_t call) {
  (void)index_of(tensor, call, /*hold=*/false);
}

bool RecordedMemory::knows(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.has_storage() && indices_.contains(storage_of(tensor));
}

namespace {

// Values that cannot be compared (streams, objects) count as equal: they are not numbers. A tensor here is undefined.
bool same_value(const c10::IValue& one, const c10::IValue& other) {
  if (one.tagKind() != other.tagKind()) return false;
  if (one.isGenerator()) return one.toGenerator() == other.toGenerator();
  if (one.isNone() || one.isTensor() || one.isObject() || one.isCapsule() || one.isStream() || one.isStorage())
    return true;
  return one == other;
}

std::string value_text(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// Memory that both have from before the step.
bool same_numbers(const RecordedStorage& one, const RecordedStorage& other) {
  if (one.held.get() == other.held.get()) return true;
  if (one.held == nullptr || other.held == nullptr || one.held->nbytes() != other.held->nbytes()) return false;
  return one.held->nbytes() == 0 || std::memcmp(one.held->data(), other.held->data(), one.held->nbytes()) == 0;
}

class Comparison {
 public:
  Comparison(const RecordedCalls& first, const RecordedCalls& second) : first_(first), second_(second) {}

  std::string of_calls() const {
    const size_t common = std::min(first_.calls.size(), second_.calls.size());
    for (size_t k = 0; k < common; ++k) {
      std::string text = of_call(first_.calls[k], second_.calls[k]);
      if (!text.empty()) return text;
    }
    if (first_.calls.size() == second_.calls.size()) return "";
    const auto& longer = first_.calls.size() > second_.calls.size() ? first_ : second_;
    return "it ran " + std::to_string(second_.calls.size()) + " operators where " +
           std::to_string(first_.calls.size()) + " were recorded, one of them " + longer.calls[common].name();
  }

 private:
  std::string of_call(const RecordedCall& one, const RecordedCall& other) const {
    if (!(one.op == other.op)) return "it called " + other.name() + " where " + one.name() + " was recorded";
    for (size_t k = 0; k < one.arguments.size(); ++k) {
      std::string text = of_argument(one.arguments[k], other.arguments[k]);
      if (!text.empty()) return one.name() + " got " + text + " as " + one.op.schema().arguments()[k].name();
    }
    return "";
  }

  std::string of_argument(const RecordedArgument& one, const RecordedArgument& other) const {
    if (one.index() != other.index()) return "a different kind of value";
    if (const auto* value = std::get_if<c10::IValue>(&one)) {
      const auto& now = std::get<c10::IValue>(other);
      return same_value(*value, now) ? "" : value_text(now) + " where " + value_text(*value) + " was recorded";
    }
    if (const auto* place = std::get_if<TensorPlace>(&one)) return of_tensor(*place, std::get<TensorPlace>(other));
    const auto& list = std::get<std::vector<TensorPlace>>(one);
    const auto& others = std::get<std::vector<TensorPlace>>(other);
    if (list.size() != others.size()) return "a different number of tensors";
    for (size_t k = 0; k < list.size(); ++k) {
      std::string text = of_tensor(list[k], others[k]);
      if (!text.empty()) return text;
    }
    return "";
  }

  // Storages are numbered in the order in which they appear, so that equal steps have equal places.
  std::string of_tensor(const TensorPlace& one, const TensorPlace& other) const {
    if (!(one == other)) return "a tensor whose shape or memory differs from the recorded one";
    if (one.storage == TensorPlace::kNoStorage) return "";
    const RecordedStorage& before = first_.memory.storages()[one.storage];
    const RecordedStorage& now = second_.memory.storages()[one.storage];
    if (same_numbers(before, now)) return "";
    return "a tensor that the host has made anew with other numbers";
  }

  const RecordedCalls& first_;
  const RecordedCalls& second_;
};

}  // namespace

std::string difference(const RecordedCalls& first, const RecordedCalls& second) {
  return Comparison(first, second).of_calls();
}

}  // namespace levin
