// IDX files, the format of MNIST: plain or gzipped. Two zero bytes, a type, the number of dimensions, their sizes and
// the values, all big-endian.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <string>

namespace levin {

/// Returns the tensor in the file, in its type (uint8, int8, int16, int32, float32 or float64) and shape. Throws
/// DataError naming file, byte, what was expected and what was seen; memory is allocated only if the file is large
/// enough. More than `max_bytes` of values are rejected.
[[nodiscard]] at::Tensor read_idx(const std::string& path, uint64_t max_bytes = uint64_t{4} << 30);

}  // namespace levin
