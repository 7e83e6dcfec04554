#include "levin/models/onnx/traced_memory.h"

namespace levin::onnx {

namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

TracedMemory::Holder* TracedMemory::find(const at::Tensor& tensor) {
  const auto found = holders_.find(tensor.unsafeGetTensorImpl());
  return found == holders_.end() ? nullptr : &found->second.holder;
}

TracedMemory::Holder* TracedMemory::find_same_elements(const at::Tensor& tensor) {
  for (at::TensorImpl* other : sharing(tensor)) {
    Holder& holder = at(other);
    if (tensor.scalar_type() == holder.dtype && tensor.sizes() == at::IntArrayRef(holder.sizes) &&
        tensor.strides() == at::IntArrayRef(holder.strides) && tensor.storage_offset() == holder.offset) {
      return &holder;
    }
  }
  return nullptr;
}

std::vector<at::TensorImpl*> TracedMemory::sharing(const at::Tensor& tensor) const {
  const auto found = storages_.find(storage_of(tensor));
  return found == storages_.end() ? std::vector<at::TensorImpl*>{} : found->second;
}

at::Tensor TracedMemory::tensor(at::TensorImpl* tensor) const {
  return at::Tensor(holders_.at(tensor).tensor.lock());
}

TracedMemory::Holder& TracedMemory::add(const at::Tensor& tensor, int64_t value) {
  Holder holder{.value = value,
                .dtype = tensor.scalar_type(),
                .sizes = tensor.sizes().vec(),
                .strides = tensor.strides().vec(),
                .offset = tensor.storage_offset()};
  if (Holder* known = find(tensor)) return *known = std::move(holder);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  Holder& added =
      holders_.emplace(impl, Kept{std::move(holder), WeakTensor(tensor.getIntrusivePtr())}).first->second.holder;
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage == nullptr) return added;
  auto& tensors = storages_[storage];
  if (tensors.empty()) kept_storages_.emplace_back(tensor.storage().getWeakStorageImpl());
  tensors.push_back(impl);
  return added;
}

}  // namespace levin::onnx
