// Splits a batch into shares for several slots and puts it together again. Both are differentiable.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

#include "levin/strategies/device_placement.h"

namespace levin {

/// Returns the sizes of at most `parts` shares of `samples`: as even as possible, the larger ones first, none empty (a
/// single share of size 0 if there are no samples). PyTorch uses torch.chunk, which may use fewer devices: of 5 samples
/// over 4 devices it makes 2, 2, 1; this function makes 2, 1, 1, 1.
[[nodiscard]] std::vector<int64_t> share_sizes(int64_t samples, size_t parts);

/// Returns the rows [from, from + count) of `tensor` on `slot`; a tensor without dimensions is moved whole.
[[nodiscard]] at::Tensor share_of(const at::Tensor& tensor, int64_t from, int64_t count, const DeviceSlot& slot);

/// `tensor` (samples, …) as shares of `sizes`, each on its slot. Throws Error if its number of rows differs.
[[nodiscard]] std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                                              const std::vector<DeviceSlot>& slots);

/// Returns the parts concatenated along the first dimension on `slot`; scalars become a vector.
[[nodiscard]] at::Tensor gather(const std::vector<at::Tensor>& parts, const DeviceSlot& slot);

/// Returns the mean of `losses` (scalars), weighted by `sizes`, on `slot`: if each is the mean over its share, the mean
/// over all samples. Undefined losses are ignored; undefined if all are.
[[nodiscard]] at::Tensor mean_loss(const std::vector<at::Tensor>& losses, const std::vector<int64_t>& sizes,
                                   const DeviceSlot& slot);

}  // namespace levin
