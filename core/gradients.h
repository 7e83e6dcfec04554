// The gradients that parameters have, as foreach kernels want them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin {

/// The gradients of those that have one, in their order.
[[nodiscard]] std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params);

/// The same, those of one device and type together.
[[nodiscard]] std::vector<std::vector<at::Tensor>> gradients_by_kind(const std::vector<at::Tensor>& params);

}  // namespace levin
