// Copies batches to a GPU on a separate stream, through pinned memory, while the GPU computes the previous batch.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include "levin/core/device_work.h"

namespace levin {

class CudaCopier final : public DeviceCopier {
 public:
  explicit CudaCopier(at::Device device);

  void send(std::vector<at::Tensor>& tensors) override;
  void receive(const std::vector<at::Tensor>& tensors) override;

 private:
  at::Device device_;
  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent sent_;
};

}  // namespace levin
