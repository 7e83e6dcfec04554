// Modules that Fabric trains in tests: torch::nn::Modules with fixed weights.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <vector>

#include "levin/data/batch.h"

namespace levin::test {

inline void fill_weights(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(torch::linspace(-0.3, 0.4, parameter.numel()).view_as(parameter));
  }
}

/// A network for the batches of tiny_loader.
class FabricNet : public torch::nn::Module {
 public:
  explicit FabricNet(double dropout = 0)
      : layers(register_module("layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                                                               torch::nn::Dropout(dropout), torch::nn::Linear(8, 1)))) {
    fill_weights(*this);
  }
  at::Tensor loss(const Batch& batch) {
    ++calls;
    return torch::mse_loss(layers->forward(batch[0]), batch[1]);
  }

  torch::nn::Sequential layers;
  int64_t calls = 0;
};

/// One batch of four samples.
inline Batch fixed_batch() {
  return {torch::linspace(-1, 1, 16).view({4, 4}), torch::linspace(0, 1, 4).view({4, 1})};
}

/// A generator and a critic with fixed noise.
struct TwoNets {
  TwoNets() {
    fill_weights(*generator);
    fill_weights(*critic);
  }
  [[nodiscard]] at::Tensor made(int64_t k) { return generator->forward(torch::linspace(-1, 1, 8).view({4, 2}) + k); }
  [[nodiscard]] at::Tensor critic_loss(int64_t k) {
    const at::Tensor real = torch::linspace(0, 1, 12).view({4, 3});
    return (critic->forward(made(k).detach()) - critic->forward(real)).tanh().mean();
  }
  [[nodiscard]] at::Tensor generator_loss(int64_t k) { return -critic->forward(made(k)).tanh().mean(); }

  torch::nn::Linear generator{2, 3};
  torch::nn::Linear critic{3, 1};
};

inline void expect_equal_weights(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t k = 0; k < one.size(); ++k) EXPECT_TRUE(at::equal(one[k], other[k])) << "parameter " << k;
}

}  // namespace levin::test
