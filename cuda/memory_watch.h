// Records the state of the caching allocator when an allocation fails: when the error is reported, the stack has been
// unwound and the step's memory is free again.
#pragma once

#include "levin/core/gpu.h"

namespace levin {

/// Starts to record failures, on all GPUs. Once per process, after CUDA was initialized.
void watch_memory();

/// The figures of the last failed allocation on `device`; zeros if none has failed.
[[nodiscard]] GpuMemory memory_at_failure(at::Device device);

}  // namespace levin
