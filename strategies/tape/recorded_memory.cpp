#include "levin/strategies/tape/recorded_memory.h"

#include <algorithm>
#include <string>

namespace levin {

namespace {

TensorPlace place_in(size_t storage, const at::Tensor& tensor) {
  return {.storage = storage,
          .offset = tensor.storage_offset(),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .type = tensor.scalar_type(),
          .wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number()};
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

}  // namespace levin
