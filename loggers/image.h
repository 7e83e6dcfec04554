// Images from tensors.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <string>

#include "levin/loggers/log_values.h"

namespace levin {

/// Returns the image of a tensor (H, W), (C, H, W) or (N, C, H, W) with 1, 3 or 4 channels of uint8, or of
/// floating-point numbers from 0 to 1; numbers outside are clipped and nan becomes 0. A batch becomes a grid of up to 8
/// columns, with lines of two black pixels between. Throws Error naming the shape or the type otherwise.
[[nodiscard]] LogImage image_of(const at::Tensor& tensor);

// PNG files.

/// Returns the bytes of a PNG file, encoded by the part levin_images. Throws ConfigError without it, and Error where
/// the image's size or channels do not fit its samples.
[[nodiscard]] std::string png_of(const LogImage& image);

}  // namespace levin
