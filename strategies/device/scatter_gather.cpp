#include "levin/strategies/device/scatter_gather.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

std::vector<int64_t> share_sizes(int64_t samples, size_t parts) {
  const auto count = std::max<int64_t>(1, std::min(samples, static_cast<int64_t>(parts)));
  std::vector<int64_t> sizes(static_cast<size_t>(count), samples / count);
  for (int64_t k = 0; k < samples % count; ++k) ++sizes[static_cast<size_t>(k)];
  return sizes;
}

at::Tensor share_of(const at::Tensor& tensor, int64_t from, int64_t count, const DeviceSlot& slot) {
  if (!tensor.defined() || tensor.dim() == 0) return move_to(tensor, slot);
  return move_to(tensor.narrow(0, from, count), slot);
}

std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                                const std::vector<DeviceSlot>& slots) {
  const int64_t samples = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) != samples) {
    throw Error("scatter: a tensor of shape " + shape_text(tensor.sizes()) + " cannot be split with a batch of " +
                count_of(samples, "sample") + ". The first dimension of every tensor must be the batch; make values " +
                "that belong to no sample buffers of the module, or tensors without dimensions.");
  }
  std::vector<at::Tensor> shares;
  int64_t from = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    shares.push_back(share_of(tensor, from, sizes[k], slots.at(k)));
    from += sizes[k];
  }
  return shares;
}

at::Tensor gather(const std::vector<at::Tensor>& parts, const DeviceSlot& slot) {
  std::vector<at::Tensor> here;
  for (const at::Tensor& part : parts) {
    if (!part.defined()) continue;
    here.push_back(move_to(part.dim() == 0 ? part.reshape({1}) : part, slot));
  }
  return here.empty() ? at::Tensor() : at::cat(here, 0);
}

at::Tensor mean_loss(const std::vector<at::Tensor>& losses, const std::vector<int64_t>& sizes, const DeviceSlot& slot) {
  int64_t samples = 0;
  for (size_t k = 0; k < losses.size(); ++k) samples += losses[k].defined() ? sizes[k] : 0;
  at::Tensor mean;
  for (size_t k = 0; k < losses.size(); ++k) {
    if (!losses[k].defined()) continue;
    const double weight = samples == 0 ? 1.0 : static_cast<double>(sizes[k]) / static_cast<double>(samples);
    const at::Tensor part = move_to(losses[k].mul(weight), slot);
    mean = mean.defined() ? mean.add(part) : part;
  }
  return mean;
}

}  // namespace levin
