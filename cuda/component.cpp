// The exported functions of liblevin_cuda.so, which core/gpu.cpp looks up by name.
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include "levin/core/gpu.h"
#include "levin/core/options/error.h"
#include "levin/cuda/memory_watch.h"
#include "levin/cuda/recorder.h"

namespace levin {

namespace {

class CudaGpu final : public Gpu {
 public:
  void use(at::Device device) override { c10::cuda::set_device(device.index()); }
  std::shared_ptr<StepRecorder> make_recorder(at::Device device) override {
    return std::make_shared<CudaRecorder>(device);
  }
  GpuMemory memory_at_failure(at::Device device) const override { return levin::memory_at_failure(device); }
};

void check_cuda() {
  if (c10::cuda::device_count() == 0) {
    throw ConfigError(
        "TrainerOptions.accelerator: gpu: LibTorch's CUDA finds no GPU, though NVIDIA's driver does. The driver may be "
        "too old for this CUDA (nvidia-smi shows the newest it knows): update it, or use accelerator: cpu.");
  }
  // LibTorch keeps its first answer forever; see core/gpu.h.
  if (!at::globalContext().hasCUDA()) {
    throw ConfigError(
        "TrainerOptions.accelerator: gpu: LibTorch was asked for a GPU before Levin's CUDA component was opened (by "
        "torch::manual_seed, a backward, or torch::cuda), and keeps its answer that there is none. Make the Trainer "
        "before that, call levin::open_gpu() first, or seed with levin::seed_everything.");
  }
}

}  // namespace

}  // namespace levin

extern "C" {

const char* levin_cuda_version() {
  return LEVIN_COMPONENT_VERSION;
}

/// Throws ConfigError if LibTorch cannot use a GPU.
levin::Gpu* levin_cuda_component() {
  static levin::CudaGpu gpu;
  levin::check_cuda();
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  levin::watch_memory();
  return &gpu;
}
}
