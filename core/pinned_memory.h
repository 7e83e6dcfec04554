// Page-locked memory of the host, from which a device copies by itself: the host does not wait for the copy. Internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace levin {

/// `tensor`, on the CPU, without gaps in pinned memory: itself if it is that already, or is not strided. Throws
/// c10::Error where LibTorch's accelerator has no such memory, or there is no accelerator.
[[nodiscard]] at::Tensor pinned(const at::Tensor& tensor);

}  // namespace levin
