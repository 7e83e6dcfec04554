#include "levin/strategies/device_copies.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "levin/core/tensors.h"
#include "levin/libtorch/device_memory.h"

namespace levin {

namespace {

bool has_pinned_memory() {
  try {
    return at::empty({1}, at::TensorOptions().pinned_memory(true)).defined();
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

StreamCopier::StreamCopier(at::Device device, c10::Stream stream)
    : device_(device), stream_(stream), sent_(device.type()), pins_(has_pinned_memory()) {}

std::shared_ptr<StreamCopier> StreamCopier::make(at::Device device) {
  try {
    const DeviceBackend backend(device.type());
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

// A copy from ordinary memory is not asynchronous, nor is a copy of a tensor with gaps, such as the columns of a larger
// tensor: LibTorch first copies it to ordinary memory. Without pinned memory the copies are correct, but late.
at::Tensor StreamCopier::copied_from(const at::Tensor& tensor) {
  if (!pins_) return tensor;
  try {
    return pinned(tensor);
  } catch (const c10::Error&) {  // there is none left
    pins_ = false;
    return tensor;
  }
}

void StreamCopier::send(std::vector<at::Tensor>& tensors) {
  const c10::StreamGuard guard(stream_);
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cpu()) continue;
    tensor = copied_from(tensor).to(device_, tensor.scalar_type(), /*non_blocking=*/true);
  }
  sent_.record(stream_);
}

// The copies' memory belongs to the side stream: the allocator must know that another stream uses it, or it would reuse
// it too soon.
void StreamCopier::receive(const std::vector<at::Tensor>& tensors) {
  const c10::Stream current = DeviceBackend(device_.type()).getStream(device_);
  sent_.block(current);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.device() == device_) tensor.record_stream(current);
  }
}

void LateRead::begin(const at::Tensor& tensor) {
  if (is_late_) {
    try {
      const bool fits = copied_ && copy_.sizes() == tensor.sizes() && copy_.scalar_type() == tensor.scalar_type();
      if (!fits) copy_ = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
      if (!copied_) copied_.emplace(tensor.device().type());
      copy_.copy_(tensor, /*non_blocking=*/true);
      copied_->record(DeviceBackend(tensor.device().type()).getStream(tensor.device()));
      return;
    } catch (const c10::Error&) {  // "Backend doesn't support …"
      is_late_ = false;
      copied_.reset();
    }
  }
  copy_ = tensor.cpu();
}

const at::Tensor& LateRead::wait() {
  if (copied_ && !copied_->query()) copied_->synchronize();
  return copy_;
}

}  // namespace levin
