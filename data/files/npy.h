// NumPy's .npy files, versions 1.0 to 3.0, as memory-mapped tensors.
// The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// The header of a file: the array's type and shape, and the position of its values.
struct NpyHeader {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {};
  uint64_t offset = 0;  // of the values, in bytes
};

/// Returns the header at the beginning of `bytes`, the content of `path`. The description is parsed, never run: it must
/// be a dict of exactly descr, fortran_order and shape. Throws DataError naming path, byte, what was expected and what
/// was seen for anything else, and for arrays that LibTorch cannot map: big-endian, Fortran order, objects, strings,
/// records.
[[nodiscard]] NpyHeader read_npy_header(const std::string& path, std::string_view bytes);

/// Returns the array in the file, mapped: bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 and
/// complex128. Throws DataError as read_npy_header() does, and where the file is shorter or longer than its header
/// says.
[[nodiscard]] at::Tensor map_npy(const std::string& path);

}  // namespace levin
