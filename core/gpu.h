// NVIDIA's GPUs: whether there are any, and Levin's part for them. That is a separate shared library,
// liblevin_cuda.so, loaded when a run uses a GPU: LibTorch's CUDA part, which it depends on, would slow down every
// start by 1.5 s.
//
// LibTorch decides once whether it has a CUDA part: when it is first asked for a GPU, at the first backward, or by
// torch::manual_seed. Create the Trainer, or call open_gpu(), before any of these; levin::seed_everything may be called
// earlier.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/core/device_work.h"

namespace levin {

class SharedLibrary;

/// The state of one GPU's caching allocator when an allocation failed; bytes.
struct GpuMemory {
  int64_t wanted = 0;     // the size that failed; 0: none has failed
  int64_t allocated = 0;  // in tensors
  int64_t reserved = 0;   // taken from the GPU, for tensors now and later
  int64_t peak = 0;       // the most that was ever allocated
  int64_t free = 0;       // of the GPU, to all programs
  int64_t total = 0;      // of the GPU
};

/// The interface of the component for the rest of Levin.
class Gpu {
 public:
  virtual ~Gpu() = default;

  /// Makes `device` the current one of the calling thread, the training thread.
  virtual void use(at::Device device) = 0;
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder(at::Device device) = 0;
  /// Returns the state at the last allocation on `device` that failed.
  [[nodiscard]] virtual GpuMemory memory_at_failure(at::Device device) const = 0;
};

/// Information from NVIDIA's driver, without LibTorch.
struct GpuDriver {
  int64_t count = 0;         // GPUs that this process may see (CUDA_VISIBLE_DEVICES)
  std::string problem = "";  // why there is none; "" if there are
};
[[nodiscard]] GpuDriver ask_gpu_driver();

/// Returns the path of liblevin_cuda.so next to this library; "" if this build has none.
[[nodiscard]] std::string gpu_component();

/// Returns why no GPU can be used here, as a sentence with what is missing and how to get it; "" if one can.
[[nodiscard]] std::string why_no_gpu();

/// Loads the component, once per process. Throws ConfigError saying what is missing: the component, the driver, a GPU,
/// or a LibTorch with CUDA; also if LibTorch has already decided against GPUs. `path`: a different library, for
/// tests.
Gpu& open_gpu(const std::string& path = "");

/// Returns true if open_gpu() has succeeded in this process.
[[nodiscard]] bool gpu_is_open();

/// Returns the loaded component, to look up symbols that it shares with a higher layer. Loads it like open_gpu().
[[nodiscard]] const SharedLibrary& gpu_library();

}  // namespace levin
