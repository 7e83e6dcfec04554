// NVIDIA's GPUs: whether there are any, and Levin's part for them. That is a separate shared library,
// liblevin_cuda.so, opened when a run wants a GPU and one is there: LibTorch's CUDA part, which it brings along, would
// cost every start 1.5 s.
//
// LibTorch decides once whether it has a CUDA part: when it is first asked for a GPU, at the first backward, or by
// torch::manual_seed. Make the Trainer, or call open_gpu(), before any of these; levin::seed_everything may come first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/core/device_work.h"

namespace levin {

class SharedLibrary;

/// What the caching allocator of one GPU held when an allocation failed; bytes.
struct GpuMemory {
  int64_t wanted = 0;     // what could not be had; 0: none has failed
  int64_t allocated = 0;  // in tensors
  int64_t reserved = 0;   // taken from the GPU, for tensors now and later
  int64_t peak = 0;       // the most that was ever allocated
  int64_t free = 0;       // of the GPU, to all programs
  int64_t total = 0;      // of the GPU
};

/// What the component does for the rest of Levin.
class Gpu {
 public:
  virtual ~Gpu() = default;

  /// Makes `device` the one that the calling thread, the training one, works on.
  virtual void use(at::Device device) = 0;
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier(at::Device device) = 0;
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder(at::Device device) = 0;
  /// Of the last allocation on `device` that failed.
  [[nodiscard]] virtual GpuMemory memory_at_failure(at::Device device) const = 0;
};

/// What NVIDIA's driver says, without LibTorch.
struct GpuDriver {
  int64_t count = 0;         // GPUs that this process may see (CUDA_VISIBLE_DEVICES)
  std::string problem = "";  // why there is none; "" if there are
};
[[nodiscard]] GpuDriver ask_gpu_driver();

/// liblevin_cuda.so beside this library; "" if this build has none.
[[nodiscard]] std::string gpu_component();

/// Why no GPU can be used here, a sentence that says what is missing and how to get it; "" if one can.
[[nodiscard]] std::string why_no_gpu();

/// Opens the component, once a process. Throws ConfigError saying what is missing: the component, the driver, a GPU, or
/// a LibTorch with CUDA; and if LibTorch has decided already that there is no GPU. `path`: for tests, another library.
Gpu& open_gpu(const std::string& path = "");

/// Whether open_gpu() has succeeded in this process.
[[nodiscard]] bool gpu_is_open();

/// The opened component, to look up what a folder above this one and the component share. Opens it as open_gpu() does.
[[nodiscard]] const SharedLibrary& gpu_library();

/// The versions of Levin and LibTorch this was built for: the component has to have the same.
[[nodiscard]] const char* gpu_component_version();

}  // namespace levin
