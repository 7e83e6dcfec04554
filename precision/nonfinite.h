// Whether numbers are inf or nan.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <vector>

namespace levin {

/// Multiplies `kinds`, dense gradients that gradients_by_kind() has grouped, by `factor`, () float32, and sets `found`,
/// one float32 on the device of `factor`, to 1 if one of them has an element that is inf or nan; else leaves `found`.
/// Blocks only for gradients on other devices.
void scale_and_check(const std::vector<std::vector<at::Tensor>>& kinds, at::Tensor& found, const at::Tensor& factor);

/// Returns whether `tensor`, dense and on a CPU, has an element that is inf or nan. Reads it once, with as many
/// threads as LibTorch's operators.
[[nodiscard]] bool has_nonfinite(const at::Tensor& tensor);

}  // namespace levin
