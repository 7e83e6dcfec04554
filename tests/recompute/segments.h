// What the tests of recomputation share: a small network, its gradients, and how often something was computed.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "levin/recompute/recompute.h"
#include "support/error_text.h"

namespace levin::test {

/// Linear, GELU, Dropout, Linear; width 8.
struct Net : torch::nn::Module {
  explicit Net(double dropout = 0.0) : drop(dropout) {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return second->forward(at::dropout(at::gelu(first->forward(x)), drop, /*train=*/true));
  }
  double drop;
  int64_t calls = 0;
  torch::nn::Linear first{nullptr}, second{nullptr};
};

/// x: (4, 8), the same in every test.
inline at::Tensor input(bool requires_grad = true) {
  torch::manual_seed(2);
  return torch::randn({4, 8}).set_requires_grad(requires_grad);
}

/// The gradients of a loss with respect to tensors, from the random numbers that follow seed 3, and then the next
/// random number.
inline std::vector<at::Tensor> gradients(std::vector<at::Tensor> of, const std::function<at::Tensor()>& output) {
  for (at::Tensor& tensor : of) tensor.mutable_grad() = at::Tensor();
  torch::manual_seed(3);
  const at::Tensor result = output();
  (result * result.detach().cos()).sum().backward();
  std::vector<at::Tensor> list;
  for (const at::Tensor& tensor : of) list.push_back(tensor.grad());
  list.push_back(torch::rand({2}));
  return list;
}

inline void expect_same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t k = 0; k < one.size(); ++k) {
    ASSERT_EQ(one[k].defined(), other[k].defined()) << k;
    if (!one[k].defined()) continue;
    EXPECT_TRUE(one[k].equal(other[k])) << k << "\n" << one[k] << "\n" << other[k];
  }
}

}  // namespace levin::test
