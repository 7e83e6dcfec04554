// Recognizes out-of-memory errors of allocators. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>

#include "levin/core/options/error.h"

namespace levin {

/// The error of a step for which a device has no memory left.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// Returns whether `error` comes from an allocation that failed: on a GPU, in LibTorch on a CPU, in a library (cuBLAS,
/// cuDNN), or std::bad_alloc.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// Empties the caching allocator of `device`; does nothing on a CPU. Waits for the device.
void free_cached_memory(at::Device device);

}  // namespace levin
