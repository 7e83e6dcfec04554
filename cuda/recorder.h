// Steps as CUDA graphs. All recordings of one recorder share a pool of memory, so they must be replayed in the order in
// which they were made (the parts of an accumulation window are).
#pragma once

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

#include "levin/core/device_work.h"

namespace levin {

class CudaRecorder final : public StepRecorder {
 public:
  explicit CudaRecorder(at::Device device);

  void warm_up(const std::function<void()>& step) override;
  /// Waits for the GPU to finish what it has been given.
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& step) override;

 private:
  c10::cuda::CUDAStream stream_;  // a graph cannot be recorded on the default stream
  at::cuda::MempoolId_t pool_;
};

}  // namespace levin
