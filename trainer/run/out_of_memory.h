// Recognizes out-of-memory errors of allocators. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>

namespace levin {

/// Whether `error` is that of an allocation that failed: a GPU's, LibTorch's on a CPU, that of a library (cuBLAS,
/// cuDNN), or std::bad_alloc.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// Empties the caching allocator of `device`; does nothing on a CPU. Waits for the device.
void free_cached_memory(at::Device device);

}  // namespace levin
