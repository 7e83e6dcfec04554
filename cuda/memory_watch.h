// What the caching allocator held when an allocation failed: by the time that the error is reported, the step has been
// unwound and its memory is free again.
#pragma once

#include "levin/core/gpu.h"

namespace levin {

/// From now on failures are noted, on all GPUs. Once a process, after CUDA was initialized.
void watch_memory();

/// The figures of the last failed allocation on `device`; zeros if none has failed.
[[nodiscard]] GpuMemory memory_at_failure(at::Device device);

}  // namespace levin
