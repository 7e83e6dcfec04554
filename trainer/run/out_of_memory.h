// How an allocator says that there is no memory left. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>

namespace levin {

/// Whether `error` is that of an allocation that failed: a GPU's, LibTorch's on a CPU, that of a library (cuBLAS,
/// cuDNN), or std::bad_alloc.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// Gives back what the allocator of `device` keeps for later; nothing on a CPU. Waits for the device.
void free_cached_memory(at::Device device);

}  // namespace levin
