// Whether two tensors are equal to the last bit.
#pragma once

#include <ATen/core/Tensor.h>

namespace levin {

/// Of CPU tensors: the same type, shape and bits; nan equals the same nan. Two undefined tensors are equal.
[[nodiscard]] bool same_bits(const at::Tensor& one, const at::Tensor& other);

}  // namespace levin
