// Captures steps as CUDA graphs. All graphs of one recorder share a memory pool, so they must be replayed in the order
// of capture (as the parts of an accumulation window are).
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <memory>

#include "levin/core/device_work.h"
#include "levin/libtorch/cuda_capture.h"

namespace levin {

class CudaRecorder final : public StepRecorder {
 public:
  explicit CudaRecorder(at::Device device);

  void warm_up(const std::function<void()>& step) override;
  /// Waits for the GPU to finish its work.
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& step) override;

 private:
  [[nodiscard]] std::shared_ptr<const GraphPool> pool();

  c10::cuda::CUDAStream stream_;         // a graph cannot be captured on the default stream
  std::weak_ptr<const GraphPool> pool_;  // held by its graphs
};

}  // namespace levin
