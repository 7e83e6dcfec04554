// Histograms of tensors.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include "levin/loggers/log_values.h"

namespace levin {

/// Counts all elements of a tensor of any type of real numbers, in bins whose edges grow by a tenth from 1e-12 on, on
/// both sides of 0, like TensorBoard's writers; only bins from the first to the last that is not empty are returned.
/// Throws Error for an empty tensor, and for complex numbers.
[[nodiscard]] Histogram histogram_of(const at::Tensor& tensor);

}  // namespace levin
