// The computation of an adapted layer written out, for tests.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/libtorch/observed_weight.h"

namespace levin::lora_truth {

struct Holder : torch::nn::Module {
  template <class Layer>
  explicit Holder(const Layer& layer) {
    register_module("layer", layer);
  }
};

// A and B with random numbers, so that both matter.
inline std::shared_ptr<LoRALayer> adapt(torch::nn::Module& module, LoRAOptions options) {
  options.target_modules = {"layer"};
  apply_lora(module, options);
  auto layer = lora_layers(module).at(0).second;
  const torch::NoGradGuard no_grad;
  layer->lora_A().normal_(0, 0.3);
  layer->lora_B().normal_(0, 0.3);
  return layer;
}

// Tensors of the computation written out.
struct Truth {
  explicit Truth(const torch::nn::Module& module) {
    const auto layer = lora_layers(module).at(0).second;
    const auto parameters = module.named_parameters();
    weight = without_observed_key(layer->weight()).clone();
    if (const auto* found = parameters.find("layer.bias")) bias = found->detach().clone();
    a = layer->lora_A().detach().clone().set_requires_grad(true);
    b = layer->lora_B().detach().clone().set_requires_grad(true);
    scaling = lora_scaling(*layer->options());
  }
  at::Tensor weight, bias = {}, a, b;
  double scaling;
};

inline void expect_near(const at::Tensor& one, const at::Tensor& other, const std::string& what,
                        double tolerance = 2e-6) {
  ASSERT_TRUE(one.defined()) << what;
  ASSERT_EQ(one.sizes(), other.sizes()) << what;
  EXPECT_LE((one - other).abs().max().item<double>(), tolerance * std::max(1.0, other.abs().max().item<double>()))
      << what;
}

using Call = std::function<at::Tensor(const at::Tensor&)>;
using WrittenOut = std::function<at::Tensor(const Truth&, const at::Tensor&)>;

// Forward, and every gradient, of the adapted layer and of the truth.
inline void compare(const torch::nn::Module& module, const Call& call, const WrittenOut& written,
                    const at::Tensor& input, const std::string& what) {
  const Truth truth(module);
  const auto layer = lora_layers(module).at(0).second;
  const bool is_real = input.is_floating_point();
  const at::Tensor x = input.clone().set_requires_grad(is_real), other_x = input.clone().set_requires_grad(is_real);
  const int64_t uses = layer->uses();
  const at::Tensor y = call(x), other_y = written(truth, other_x);
  EXPECT_EQ(layer->uses(), uses + 1) << what << ": the product was seen once";
  expect_near(y, other_y, what + ": forward");
  const at::Tensor weights = torch::randn_like(other_y);
  (y * weights).sum().backward();
  (other_y * weights).sum().backward();
  if (is_real) expect_near(x.grad(), other_x.grad(), what + ": gradient of the input", 1e-5);
  expect_near(layer->lora_A().grad(), truth.a.grad(), what + ": gradient of A", 1e-5);
  expect_near(layer->lora_B().grad(), truth.b.grad(), what + ": gradient of B", 1e-5);
  EXPECT_FALSE(layer->weight().grad().defined());
  layer->lora_A().mutable_grad() = at::Tensor();
  layer->lora_B().mutable_grad() = at::Tensor();
}

}  // namespace levin::lora_truth
