// A linear layer on (…, in). torch::nn::Linear adds its bias in a separate pass where the input has more than two
// dimensions; at::linear, which Python's nn.Linear calls, does so within the matrix product.
#pragma once

#include <torch/nn/modules/linear.h>

inline torch::Tensor project(torch::nn::Linear& layer, const torch::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}
