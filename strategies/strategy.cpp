#include "levin/strategies/strategy.h"

#include <torch/nn/module.h>

#include "levin/core/error.h"

namespace levin {

void Strategy::use_device(at::Device device) {
  if (device.type() == this->device().type()) return;
  throw ConfigError("TrainerOptions.strategy: " + name() + " runs on " + this->device().str() + " and not on " +
                    device.str() + ". Use accelerator: cpu, or override use_device in the strategy.");
}

void Strategy::place(torch::nn::Module& module) {
  module.to(device());
}

void Strategy::run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss) {
  for (size_t k = 0; k < count; ++k) {
    const at::Tensor part = loss(k);
    if (part.defined()) backward(part, k + 1 == count);
  }
}

}  // namespace levin
