// Replaces what tensors and storages hold: memory, version counters, sizes, dispatch keys. Only this folder does so;
// other folders use a TensorImpl or StorageImpl to know a tensor or its memory again. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace levin {

/// Releases the storage's memory, and gives it `memory`. Its size stays. For replays, which call it for each result.
inline void set_memory(c10::StorageImpl& storage, at::DataPtr&& memory) {
  storage.set_data_ptr_noswap(std::move(memory));
}

/// Gives the storage `memory`, and returns the memory that it had. Its size stays.
[[nodiscard]] inline at::DataPtr exchange_memory(c10::StorageImpl& storage, at::DataPtr&& memory) {
  return storage.set_data_ptr(std::move(memory));
}

/// Gives the tensor's storage new memory of the tensor's size, from the storage's allocator, without values.
void allocate_storage(const at::Tensor& tensor);
/// Releases the memory of the tensor's storage, whose size is then 0. Views of the tensor, including autograd's, stay,
/// and nothing may read them before the next allocate_storage().
void free_storage(const at::Tensor& tensor);

/// Returns a tensor in the storage's memory, without a graph.
[[nodiscard]] at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKeySet keys, at::ScalarType dtype,
                                     at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);

/// Returns a tensor in the same memory with the same version counter, without the graph.
[[nodiscard]] at::Tensor alias_of(const at::Tensor& tensor);
/// Returns a tensor in the same memory with a new version counter, at 0, without the graph.
[[nodiscard]] at::Tensor alias_with_new_version(const at::Tensor& tensor);
/// Gives `tensor` the version counter of `other`, in whose memory it is: autograd then detects a change of the one that
/// was made through the other.
void share_version(const at::Tensor& tensor, const at::Tensor& other);

/// Does what tensor.set_data(data) does: every handle of `tensor` has the data. Also works where LibTorch's set_data
/// refuses: to and from a backend outside it (PrivateUse1), and there between tensors with different dispatch keys.
void set_tensor_data(const at::Tensor& tensor, const at::Tensor& data);

/// Gives `leaf` other data, of any shape, and drops its gradient. Every handle of the leaf has the data.
void replace_leaf_data(const at::Tensor& leaf, const at::Tensor& data);

}  // namespace levin
