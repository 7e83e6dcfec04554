#include "levin/libtorch/tensor_memory.h"

#include <ATen/ops/_has_compatible_shallow_copy_type.h>
#include <c10/core/TensorImpl.h>

#include "levin/libtorch/graph_nodes.h"

namespace levin {

namespace {

at::Tensor alias_with(const at::Tensor& tensor, const c10::VariableVersion& version) {
  return at::Tensor(
      tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(version, /*allow_tensor_metadata_change=*/false));
}

}  // namespace

void allocate_storage(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = tensor.nbytes();
  set_memory(storage, storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

void free_storage(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  set_memory(storage, at::DataPtr(nullptr, tensor.device()));
  storage.set_nbytes(0);
}

at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKeySet keys, at::ScalarType dtype,
                       at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return made;
}

at::Tensor alias_of(const at::Tensor& tensor) {
  return alias_with(tensor, tensor.unsafeGetTensorImpl()->version_counter());
}

at::Tensor alias_with_new_version(const at::Tensor& tensor) {
  return alias_with(tensor, c10::VariableVersion(0));
}

void share_version(const at::Tensor& tensor, const at::Tensor& other) {
  tensor.unsafeGetTensorImpl()->set_version_counter(other.unsafeGetTensorImpl()->version_counter());
}

// LibTorch has a list of backends whose tensors may be exchanged; tensors of all backends are of one class, TensorImpl.
// The node that accumulates gradients knows the device and the type, so autograd makes another where these change.
void set_tensor_data(const at::Tensor& tensor, const at::Tensor& data) {
  if (at::_has_compatible_shallow_copy_type(tensor, data)) return tensor.set_data(data);
  if (tensor.device() != data.device() || tensor.scalar_type() != data.scalar_type()) forget_accumulator(tensor);
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

void replace_leaf_data(const at::Tensor& leaf, const at::Tensor& data) {
  leaf.mutable_grad().reset();
  set_tensor_data(leaf, data);
  forget_accumulator(leaf);  // it expects gradients of the old shape
}

}  // namespace levin
