#include "levin/cli/commands/plan_devices.h"

#include <algorithm>

namespace levin {

int64_t largest_share(int64_t batch, size_t devices) {
  const auto count = static_cast<int64_t>(std::max<size_t>(1, devices));
  return std::max<int64_t>(1, (batch + count - 1) / count);
}

std::vector<DeviceMemory> predict_devices(const ChainCost& one, const ChainCost& other, int64_t batch,
                                          const std::vector<std::string>& devices, const Segments& segments) {
  const auto count = static_cast<int64_t>(devices.size());
  std::vector<DeviceMemory> result;
  for (int64_t k = 0; k < std::min(count, std::max<int64_t>(1, batch)); ++k) {
    const int64_t samples = batch / count + (k < batch % count ? 1 : 0);
    ChainCost cost = at_batch(one, other, samples);
    DeviceMemory device{devices[static_cast<size_t>(k)], samples, cost.parameters, cost.gradients, 0, 0};
    if (k == 0) {
      device.optimizer_state = cost.optimizer_state;
    } else {
      // A replica's gradients are taken from it in backward, and go into the sum on the first device.
      cost.inputs = cost.inputs * samples / std::max<int64_t>(1, batch);
      cost.gradients = cost.optimizer_state = cost.optimizer_peak = cost.callbacks = 0;
      cost.gradients_stay = false;
    }
    device.peak = predict_memory(cost, segments).peak;
    result.push_back(device);
  }
  return result;
}

std::optional<ModelOutputs> model_outputs(const ChainCost& one, const ChainCost& other, int64_t batch) {
  const ChainCost cost = at_batch(one, other, batch);
  for (size_t k = cost.blocks.size(); k-- > 0;) {
    const BlockCost& block = cost.blocks[k];
    if (block.chain == kFixedBlock && block.name.starts_with("what ")) continue;  // the loss, not a submodule
    return ModelOutputs{block.name, block.output, block.output_gradient};
  }
  return std::nullopt;
}

}  // namespace levin
