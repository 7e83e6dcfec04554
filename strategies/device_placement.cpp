#include "levin/strategies/device_placement.h"

#include <torch/nn/module.h>

namespace levin {

void DevicePlacement::place(torch::nn::Module& module) {
  module.to(device());
}

void place_buffers(torch::nn::Module& module, at::Device device) {
  for (at::Tensor& buffer : module.buffers()) buffer.set_data(buffer.to(device));
}

}  // namespace levin
