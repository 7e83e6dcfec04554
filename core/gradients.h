// The gradients of parameters, as foreach kernels require them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

/// `tensors` in order, each once. LibTorch's parameters() lists the tensors of a layer that has two names (a tied
/// layer) twice; PyTorch's lists them once.
[[nodiscard]] std::vector<at::Tensor> distinct(std::vector<at::Tensor> tensors);

/// The gradients of those parameters that have one, in order, each once.
[[nodiscard]] std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params);

/// The same, grouped by device and type.
[[nodiscard]] std::vector<std::vector<at::Tensor>> gradients_by_kind(const std::vector<at::Tensor>& params);

/// Multiplies `kinds`, dense gradients that gradients_by_kind() has grouped, by `factor`, () float32, and sets `found`,
/// one float32 on the device of `factor`, to 1 if one of them has an element that is inf or nan; else leaves `found`.
/// Blocks only for gradients on other devices.
void scale_and_check(const std::vector<std::vector<at::Tensor>>& kinds, at::Tensor& found, const at::Tensor& factor);

/// Returns whether `tensor`, dense and on a CPU, has an element that is inf or nan. Reads it once, with as many
/// threads as LibTorch's operators.
[[nodiscard]] bool has_nonfinite(const at::Tensor& tensor);

}  // namespace levin
