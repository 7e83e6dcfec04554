// Moves modules between devices.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace levin {

/// As tensor.set_data(data): every handle of `tensor` has the data. Also where LibTorch's set_data refuses, to and from
/// a backend outside it (PrivateUse1).
void set_tensor_data(at::Tensor& tensor, const at::Tensor& data);

/// module.to(device), with set_tensor_data.
void move_module(torch::nn::Module& module, at::Device device);

}  // namespace levin
