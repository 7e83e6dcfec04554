// Tensors as the C interface passes them.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/c/levin.h"

namespace levin::c {

/// Returns a new handle of the tensor.
[[nodiscard]] levin_tensor* new_tensor(at::Tensor tensor);
/// Returns the tensor of a handle. Throws InvalidArgument as Handles::find does.
[[nodiscard]] at::Tensor tensor_of(const levin_tensor* handle);

}  // namespace levin::c
