#include "levin/strategies/stream_copier.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace levin {

StreamCopier::StreamCopier(at::Device device, c10::Stream stream)
    : device_(device), stream_(stream), sent_(device.type()) {}

std::shared_ptr<StreamCopier> StreamCopier::make(at::Device device) {
  try {
    const c10::impl::VirtualGuardImpl backend(device.type());
    const c10::Stream stream = backend.getStreamFromGlobalPool(device);
    if (stream == backend.getStream(device)) return nullptr;
    std::shared_ptr<StreamCopier> copier(new StreamCopier(device, stream));
    copier->sent_.record(stream);
    copier->sent_.block(backend.getStream(device));
    return copier;
  } catch (const c10::Error&) {  // "Backend doesn't support …"
    return nullptr;
  }
}

// A copy from ordinary memory is not asynchronous, nor is that of a part with gaps, such as the columns of a larger
// tensor: LibTorch first copies it to ordinary memory. Without pinned memory the copies are correct, but late.
at::Tensor StreamCopier::pinned(const at::Tensor& tensor) {
  if (!pins_) return tensor;
  try {
    const at::Tensor whole = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    return whole.is_pinned() ? whole : whole.pin_memory();
  } catch (const c10::Error&) {
    pins_ = false;
    return tensor;
  }
}

void StreamCopier::send(std::vector<at::Tensor>& tensors) {
  const c10::StreamGuard guard(stream_);
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cpu()) continue;
    tensor = pinned(tensor).to(device_, tensor.scalar_type(), /*non_blocking=*/true);
  }
  sent_.record(stream_);
}

// The copies' memory belongs to the side stream: the allocator must know that another stream uses it, or it would reuse
// it too soon.
void StreamCopier::receive(const std::vector<at::Tensor>& tensors) {
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  sent_.block(current);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.device() == device_) tensor.record_stream(current);
  }
}

}  // namespace levin
