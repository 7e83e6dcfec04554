#include "levin/cuda/copier.h"

#include <ATen/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

namespace levin {

CudaCopier::CudaCopier(at::Device device)
    : device_(device), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

// From ordinary memory a copy is not asynchronous. Pinned memory comes from LibTorch's cache of it, which takes a block
// back when the copy out of it is done.
void CudaCopier::send(std::vector<at::Tensor>& tensors) {
  const c10::cuda::CUDAStreamGuard guard(stream_);
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cpu()) continue;
    const at::Tensor pinned = tensor.is_pinned() ? tensor : tensor.pin_memory();
    tensor = pinned.to(device_, pinned.scalar_type(), /*non_blocking=*/true);
  }
  sent_.record(stream_);
}

// The copies' memory belongs to the side stream: the allocator must know that another stream uses it, or it would reuse
// it too soon.
void CudaCopier::receive(const std::vector<at::Tensor>& tensors) {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_.index());
  sent_.block(current);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.device() == device_) tensor.record_stream(current);
  }
}

}  // namespace levin
