// What LARS and LAMB share: the step of a tensor, in proportion to the norm of its weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin::detail {

/// The norm of each tensor, () each; no device is waited for.
[[nodiscard]] at::Tensor stacked_norms(const std::vector<at::Tensor>& tensors);

/// `above / below` where both are above 0, else 1: layer by layer, (layers) each.
[[nodiscard]] at::Tensor ratio_or_one(const at::Tensor& above, const at::Tensor& below);

/// Multiplies tensor i by ratios[i], in place, if it has two dimensions or more, or with `vectors`.
void scale_layers(std::vector<at::Tensor>& tensors, const at::Tensor& ratios, bool vectors);

}  // namespace levin::detail
