#include "levin/strategies/device_placement.h"

#include <torch/nn/module.h>

namespace levin {

void DevicePlacement::place(torch::nn::Module& module) {
  module.to(device());
}

}  // namespace levin
