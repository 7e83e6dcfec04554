// A batch into shares for several slots and back. Part of the graph: gradients find their way through both.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/strategies/device_slot.h"

namespace levin {

/// How many of `samples` each of at most `parts` shares holds: as even as can be, the larger ones first, none empty
/// (one share of 0 where there is no sample). PyTorch: torch.chunk, which may use fewer devices (5 over 4: 2, 2, 1);
/// here: 2, 1, 1, 1, because no device should wait for another with twice the work.
[[nodiscard]] std::vector<int64_t> share_sizes(int64_t samples, size_t parts);

/// The rows [from, from + count) of `tensor` on `slot`; one without dimensions goes there whole.
[[nodiscard]] at::Tensor share_of(const at::Tensor& tensor, int64_t from, int64_t count, const DeviceSlot& slot);

/// `tensor` (samples, …) as shares of `sizes`, each on its slot. Throws Error if it has another number of rows.
[[nodiscard]] std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                                              const std::vector<DeviceSlot>& slots);

/// The parts one below the other on `slot`; numbers become the rows of a vector.
[[nodiscard]] at::Tensor gather(const std::vector<at::Tensor>& parts, const DeviceSlot& slot);

/// The mean of `losses` (one number each), weighted by `sizes`, on `slot`: where each is the mean over its share, that
/// of all samples; with equal shares the plain mean. Undefined ones count for nothing; undefined if all are.
[[nodiscard]] at::Tensor mean_loss(const std::vector<at::Tensor>& losses, const std::vector<int64_t>& sizes,
                                   const DeviceSlot& slot);

}  // namespace levin
