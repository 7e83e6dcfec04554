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

}  // namespace levin
