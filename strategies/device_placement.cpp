#include "levin/strategies/device_placement.h"

#include <torch/nn/module.h>

#include "levin/strategies/move_module.h"

namespace levin {

void DevicePlacement::place(torch::nn::Module& module) {
  move_module(module, device());
}

void place_buffers(torch::nn::Module& module, at::Device device) {
  for (at::Tensor& buffer : module.buffers()) set_tensor_data(buffer, buffer.to(device));
}

}  // namespace levin
