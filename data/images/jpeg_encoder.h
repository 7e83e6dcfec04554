// Images as JPEG files, with the settings that PIL's Image.save() has by default.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace levin {

/// Returns a baseline JPEG of an image (3, H, W) uint8: colours at half the resolution (4:2:0), as PIL writes it with
/// this `quality`, 1 to 100. Throws Error for other tensors, and for sides of more than 65,500 pixels.
[[nodiscard]] std::string encode_jpeg(const at::Tensor& image, int64_t quality);

}  // namespace levin
