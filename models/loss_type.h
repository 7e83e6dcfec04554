// In which type losses of a model's outputs are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace levin {

/// float32, or wider if the output or a target of real numbers is: what a 16-bit precision has computed is compared
/// with the unchanged target. `target` may be undefined.
inline at::ScalarType loss_type(const at::Tensor& output, const at::Tensor& target = {}) {
  const auto wide = c10::promoteTypes(output.scalar_type(), at::kFloat);
  return target.defined() && target.is_floating_point() ? c10::promoteTypes(wide, target.scalar_type()) : wide;
}

}  // namespace levin
