// The memory of each device in a step with strategy dp or dp_balanced, predicted from measurements of one device. Part
// of levin plan memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/recompute/chain_cost.h"

namespace levin {

/// Predicted memory of one device, in bytes.
struct DeviceMemory {
  std::string device = "";
  int64_t samples = 0;          // its part of the batch
  int64_t weights = 0;          // the module's on the first device, a replica's on the others
  int64_t gradients = 0;        // on the first device also the sum
  int64_t optimizer_state = 0;  // on the first device only
  int64_t peak = 0;
};

/// The samples of the largest part of the batch, which the first device computes.
[[nodiscard]] int64_t largest_share(int64_t batch, size_t devices);

/// Predicts each device for a batch of `batch` samples. `one` and `other` are costs of two batch sizes, see at_batch;
/// their inputs are the whole batch, which the first device is given. Devices without a sample are left out, as in
/// training.
[[nodiscard]] std::vector<DeviceMemory> predict_devices(const ChainCost& one, const ChainCost& other, int64_t batch,
                                                        const std::vector<std::string>& devices,
                                                        const Segments& segments);

/// The last border before the loss: what PyTorch's DataParallel gathers on the first device.
struct ModelOutputs {
  std::string block = "";
  int64_t bytes = 0;           // of the whole batch
  int64_t gradient_bytes = 0;  // as many, unless no backward comes to it
};
/// Unset: the module has no block whose output it could be.
[[nodiscard]] std::optional<ModelOutputs> model_outputs(const ChainCost& one, const ChainCost& other, int64_t batch);

}  // namespace levin
