// The gradients of parameters, as foreach kernels require them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

/// The gradients of those parameters that have one, in order.
[[nodiscard]] std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params);

/// The same, grouped by device and type.
[[nodiscard]] std::vector<std::vector<at::Tensor>> gradients_by_kind(const std::vector<at::Tensor>& params);

}  // namespace levin
