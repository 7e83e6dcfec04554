// Tensors in messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace levin {

/// "(64, 784)"; "()" for one number.
[[nodiscard]] std::string shape_text(at::IntArrayRef sizes);

/// "1.5 GiB", "17 B"
[[nodiscard]] std::string bytes_text(uint64_t bytes);

}  // namespace levin
