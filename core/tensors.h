// Questions about tensors: shapes in messages, equal bits, pinned memory, gradients of parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

// Tensors in messages.

/// Returns "(64, 784)"; "()" for a scalar.
[[nodiscard]] std::string shape_text(at::IntArrayRef sizes);

/// Returns "float32", NumPy's name of the type, or LibTorch's name where NumPy has none.
[[nodiscard]] std::string dtype_name(at::ScalarType type);

// Bitwise comparison of tensors.

/// Returns true if two CPU tensors have the same type and shape and are bitwise identical, so that nan equals the same
/// nan. Two undefined tensors are equal.
[[nodiscard]] bool bitwise_equal(const at::Tensor& one, const at::Tensor& other);

// Page-locked memory of the host, from which a device copies by itself: the host does not wait for the copy. Internal.

/// Returns a copy of the CPU tensor `tensor` in pinned memory, without gaps; `tensor` itself if it is not strided or
/// already pinned. Throws c10::Error if LibTorch has no accelerator, or one without such memory.
[[nodiscard]] at::Tensor pinned(const at::Tensor& tensor);

// The gradients of parameters, as foreach kernels require them.

/// Returns `tensors` in order, each once. LibTorch's parameters() lists the tensors of a layer that has two names (a
/// tied layer) twice; PyTorch's lists them once.
[[nodiscard]] std::vector<at::Tensor> distinct(std::vector<at::Tensor> tensors);

/// Returns the gradients of the parameters that have one, in order, each once.
[[nodiscard]] std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params);

/// Returns the same gradients, grouped by device and type.
[[nodiscard]] std::vector<std::vector<at::Tensor>> gradients_by_kind(const std::vector<at::Tensor>& params);

}  // namespace levin
