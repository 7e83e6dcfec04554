// Tensors as pictures.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/loggers/log_values.h"

namespace levin {

/// The picture of a tensor (H, W), (C, H, W) or (N, C, H, W) with 1, 3 or 4 channels: of uint8, or of floating-point
/// numbers from 0 to 1, where those outside are clipped and nan is 0. A batch becomes a grid of up to 8 columns, with
/// lines of two black pixels between. Throws Error naming the shape or the type otherwise.
[[nodiscard]] LogImage image_of(const at::Tensor& tensor);

}  // namespace levin
