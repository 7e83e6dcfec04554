// Compares an adapted layer with the same computation written out, for every way to request its product.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/libtorch/observed_weight.h"
#include "levin/models/huggingface/layers.h"
#include "support/error_text.h"

namespace levin::lora_math_test {
namespace {

constexpr double kTolerance = 1e-6;

// A layer of some class as "layer" of a module.
struct Holder : torch::nn::Module {
  template <class Layer>
  explicit Holder(const Layer& layer) {
    register_module("layer", layer);
  }
};

// What the adapted layer must compute: its weight and bias, A, B and the scaling, as plain tensors.
struct Truth {
  explicit Truth(const torch::nn::Module& module) {
    const auto [name, layer] = lora_layers(module).at(0);
    const auto parameters = module.named_parameters();
    weight = without_observed_key(layer->weight()).clone();
    if (layer->is_in_out()) weight = weight.t().contiguous();
    if (const auto* found = parameters.find("layer.bias")) bias = found->detach().clone();
    a = layer->lora_A().detach().clone().set_requires_grad(true);
    b = layer->lora_B().detach().clone().set_requires_grad(true);
    scaling = lora_scaling(*layer->options());
  }

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor base = x.matmul(weight.t());
    const at::Tensor sum = base + x.matmul(a.t()).matmul(b.t()) * scaling;
    return bias.defined() ? sum + bias : sum;
  }

  at::Tensor weight, bias, a, b;
  double scaling;
};

void give_b_values(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : lora_layers(module)) item.second->lora_B().normal_(0, 0.3);
}

void expect_near(const at::Tensor& one, const at::Tensor& other, const char* what, double tolerance = kTolerance) {
  ASSERT_TRUE(one.defined()) << what;
  ASSERT_EQ(one.sizes(), other.sizes()) << what;
  EXPECT_LE((one - other).abs().max().item<double>(), tolerance * std::max(1.0, other.abs().max().item<double>()))
      << what;
}

// Compares forward and every gradient of `call` (of the adapted layer) with the computation written out.
void compare(const torch::nn::Module& module, const std::function<at::Tensor(const at::Tensor&)>& call,
             const at::Tensor& input) {
  const Truth truth(module);
  const auto layer = lora_layers(module).at(0).second;
  const at::Tensor x = input.clone().set_requires_grad(true), other_x = input.clone().set_requires_grad(true);
  const int64_t uses = layer->uses();
  const at::Tensor y = call(x), other_y = truth.forward(other_x);
  EXPECT_EQ(layer->uses(), uses + 1) << "the product was seen once";
  expect_near(y, other_y, "forward");
  const at::Tensor weights = torch::randn_like(other_y);
  (y * weights).sum().backward();
  (other_y * weights).sum().backward();
  expect_near(x.grad(), other_x.grad(), "gradient of the input");
  expect_near(layer->lora_A().grad(), truth.a.grad(), "gradient of A", 5 * kTolerance);
  expect_near(layer->lora_B().grad(), truth.b.grad(), "gradient of B", 5 * kTolerance);
  EXPECT_FALSE(layer->weight().grad().defined());
  layer->lora_A().mutable_grad() = at::Tensor();
  layer->lora_B().mutable_grad() = at::Tensor();
}

TEST(LoRAMath, LinearLayersAreTheClosedForm) {
  torch::manual_seed(1);
  for (const bool has_bias : {true, false}) {
    torch::nn::Linear layer(torch::nn::LinearOptions(12, 9).bias(has_bias));
    Holder module(layer.ptr());
    apply_lora(module, {.target_modules = {"layer"}, .r = 4, .lora_alpha = 6.0});
    give_b_values(module);
    const auto call = [&](const at::Tensor& x) { return layer->forward(x); };
    compare(module, call, torch::randn({5, 12}));
    compare(module, call, torch::randn({2, 3, 12}));
    compare(module, call, torch::randn({12}));
  }
}

TEST(LoRAMath, LayersOfHuggingFaceAreTheClosedForm) {
  torch::manual_seed(2);
  const auto linear = std::make_shared<huggingface::Linear>(10, 7);
  const auto conv = std::make_shared<huggingface::Conv1D>(10, 7);
  const auto square = std::make_shared<huggingface::Conv1D>(10, 10);
  const auto check = [](const auto& layer) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : layer->parameters()) parameter.normal_();
    Holder module(layer);
    apply_lora(module, {.target_modules = {"layer"}, .r = 3, .lora_alpha = 6.0, .use_rslora = true});
    EXPECT_DOUBLE_EQ(lora_scaling(*lora_layers(module).at(0).second->options()), 6 / std::sqrt(3.0));
    give_b_values(module);
    const torch::AutoGradMode gradients(true);
    compare(
        module, [&](const at::Tensor& x) { return layer->forward(x); }, torch::randn({4, 5, 10}));
  };
  check(linear);
  check(conv);
  check(square);
}

TEST(LoRAMath, ProductsOfOtherOperatorsAreTheLayers) {
  torch::manual_seed(3);
  torch::nn::Linear layer(12, 12);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4});
  give_b_values(module);
  const at::Tensor &w = layer->weight, &b = layer->bias;
  const at::Tensor x = torch::randn({5, 12});
  using Call = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<Call> calls = {[&](const at::Tensor& i) { return at::linear(i, w, b); },
                                   [&](const at::Tensor& i) { return at::matmul(i, w.t()) + b; },
                                   [&](const at::Tensor& i) { return at::mm(i, w.transpose(0, 1)) + b; },
                                   [&](const at::Tensor& i) {
                                     return at::mm(i, w.permute({1, 0})) + b;
                                   },
                                   [&](const at::Tensor& i) { return at::linear(i, w.t().t(), b); },
                                   [&](const at::Tensor& i) { return at::addmm(b * 2, i, w.t(), 0.5, 1); }};
  for (const auto& call : calls) compare(module, call, x);
  const Truth truth(module);
  const at::Tensor twice = at::addmm(b, x, w.t(), 3, 2), plain = truth.forward(x) - b;
  expect_near(twice, 3 * b + 2 * plain, "factors");
  // Products that are not the layer's are the weight's own: decoders that share an encoder's matrix.
  expect_near(at::linear(x, w.t()), x.matmul(truth.weight), "with the transposed weight");
  expect_near(at::mm(x, w), x.matmul(truth.weight), "with the transposed weight");
  expect_near(w * 2, truth.weight * 2, "another operator");
}

TEST(LoRAMath, StartsAsTheLayerWithoutAdapter) {
  torch::manual_seed(4);
  torch::nn::Linear layer(40, 9);
  const at::Tensor x = torch::randn({5, 40}), before = layer->forward(x);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 8});
  EXPECT_TRUE(layer->forward(x).equal(before));
  const auto adapter = lora_layers(module).at(0).second;
  EXPECT_EQ(adapter->lora_A().sizes(), at::IntArrayRef({8, 40}));
  EXPECT_EQ(adapter->lora_B().sizes(), at::IntArrayRef({9, 8}));
  EXPECT_EQ(adapter->lora_B().abs().max().item<float>(), 0);
  const double bound = 1 / std::sqrt(40.0);
  EXPECT_LE(adapter->lora_A().abs().max().item<double>(), bound);
  EXPECT_NEAR(adapter->lora_A().std().item<double>(), bound / std::sqrt(3.0), 0.01);
  torch::nn::Linear other(400, 9);
  Holder gaussian(other.ptr());
  apply_lora(gaussian, {.target_modules = {"layer"}, .r = 8, .init_lora_weights = LoRAInit::gaussian});
  EXPECT_NEAR(lora_layers(gaussian).at(0).second->lora_A().std().item<double>(), 1.0 / 8, 0.01);
}

TEST(LoRAMath, DropoutDropsTheAdaptersInputsWhileTraining) {
  torch::manual_seed(5);
  torch::nn::Linear layer(torch::nn::LinearOptions(16, 16).bias(false));
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4, .lora_dropout = 0.5});
  give_b_values(module);
  const Truth truth(module);
  const at::Tensor x = torch::randn({64, 16});
  module.train();
  torch::manual_seed(6);
  const at::Tensor y = layer->forward(x);
  torch::manual_seed(6);
  const at::Tensor dropped = torch::dropout(x, 0.5, true);
  const at::Tensor wanted =
      x.matmul(truth.weight.t()) + dropped.matmul(truth.a.t()).matmul(truth.b.t()) * truth.scaling;
  expect_near(y, wanted, "training");
  module.eval();
  expect_near(layer->forward(x), truth.forward(x), "evaluation");
}

// The layer's weight with DoRA: rows of W + s B A, of the norms m.
at::Tensor dora_weight(const Truth& truth, const at::Tensor& magnitude) {
  const at::Tensor sum = truth.weight + truth.scaling * truth.b.matmul(truth.a);
  return sum * (magnitude / sum.detach().norm(2, 1)).unsqueeze(1);
}

TEST(LoRAMath, DoRAIsTheClosedFormOfItsPaper) {
  torch::manual_seed(15);
  const auto linear = std::make_shared<torch::nn::LinearImpl>(10, 7);
  const auto conv = std::make_shared<huggingface::Conv1D>(10, 7);
  const auto check = [](const auto& layer) {
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : layer->parameters()) parameter.normal_();
    }
    Holder module(layer);
    const at::Tensor x = torch::randn({4, 5, 10}), before = layer->forward(x).detach();
    apply_lora(module, {.target_modules = {"layer"}, .r = 3, .lora_alpha = 6.0, .use_dora = true});
    expect_near(layer->forward(x), before, "as the layer before", 1e-5);
    give_b_values(module);
    const auto adapter = lora_layers(module).at(0).second;
    {
      const torch::NoGradGuard no_grad;
      adapter->magnitude().mul_(torch::rand({7}) + 0.5);
    }
    const Truth truth(module);
    const at::Tensor magnitude = adapter->magnitude().detach().clone().set_requires_grad(true);
    const at::Tensor y = layer->forward(x);
    const at::Tensor wanted = torch::linear(x, dora_weight(truth, magnitude), truth.bias);
    expect_near(y, wanted, "forward", 1e-5);
    const at::Tensor weights = torch::randn_like(wanted);
    (y * weights).sum().backward();
    (wanted * weights).sum().backward();
    expect_near(adapter->lora_A().grad(), truth.a.grad(), "gradient of A", 1e-5);
    expect_near(adapter->lora_B().grad(), truth.b.grad(), "gradient of B", 1e-5);
    expect_near(adapter->magnitude().grad(), magnitude.grad(), "gradient of the magnitudes", 1e-5);
    merge_lora(module);
    expect_near(layer->forward(x), wanted, "merged", 1e-5);
    EXPECT_EQ(module.named_parameters().size(), 2U);
  };
  check(linear);
  check(conv);
}

TEST(LoRAMath, DoRADropsInputsOfBothProducts) {
  torch::manual_seed(16);
  torch::nn::Linear layer(16, 8);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4, .lora_dropout = 0.5, .use_dora = true});
  give_b_values(module);
  const Truth truth(module);
  const at::Tensor x = torch::randn({64, 16}), magnitude = lora_layers(module).at(0).second->magnitude().detach();
  module.train();
  torch::manual_seed(6);
  const at::Tensor y = layer->forward(x);
  torch::manual_seed(6);
  const at::Tensor dropped = torch::dropout(x, 0.5, true);
  // What training sees of the difference to the layer's own weight is of the dropped inputs.
  const at::Tensor wanted =
      torch::linear(x, truth.weight, truth.bias) + torch::linear(dropped, dora_weight(truth, magnitude) - truth.weight);
  expect_near(y, wanted, "training", 1e-5);
  module.eval();
  expect_near(layer->forward(x), torch::linear(x, dora_weight(truth, magnitude), truth.bias), "evaluation", 1e-5);
}

TEST(LoRAMath, DoRAOfQuantizedWeightsEqualsDoRAOfTheirBits) {
  torch::manual_seed(17);
  torch::nn::Linear layer(torch::nn::LinearOptions(64, 8).bias(false));
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4, .use_dora = true, .quantize = Quantize::nf4});
  give_b_values(module);
  const at::Tensor x = torch::randn({5, 64}), y = layer->forward(x).detach();
  merge_lora(module);
  expect_near(y, torch::linear(x, layer->weight), "merged", 1e-5);
}

TEST(LoRAMath, PatternsOfTwoNamesOrOfNoneAreErrors) {
  Holder module(torch::nn::Linear(6, 4).ptr());
  const auto error_with = [&](LoRAOptions options) {
    options.target_modules = {"layer"};
    return test::error_of<ConfigError>([&] { apply_lora(module, options); });
  };
  EXPECT_TRUE(test::holds(error_with({.rank_pattern = {{"gone", 2}}}),
                          {"LoRAOptions.rank_pattern.gone: no adapted layer's name matches it. Adapted: layer"}));
  EXPECT_TRUE(test::holds(error_with({.alpha_pattern = {{"l*", 2.0}, {"layer", 3.0}}}),
                          {"LoRAOptions.alpha_pattern.layer: 3.0 for layer, to which a different name gives 2.0"}));
  EXPECT_TRUE(test::holds(error_with({.rank_pattern = {{"layer", 0}}}), {"rank_pattern", "> 0"}));
  EXPECT_EQ(error_with({.rank_pattern = {{"l*", 2}, {"layer", 2}}}), "");
}

TEST(LoRAMath, AutocastComputesBothInBfloat16) {
  torch::manual_seed(7);
  torch::nn::Linear layer(32, 16);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4});
  give_b_values(module);
  const Truth truth(module);
  const at::Tensor x = torch::randn({8, 32});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor y = layer->forward(x);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_near(y.to(at::kFloat), truth.forward(x), "in bfloat16", 0.02);
  y.sum().backward();
  EXPECT_EQ(lora_layers(module).at(0).second->lora_A().grad().scalar_type(), at::kFloat);
}

TEST(LoRAMath, AWeightThatIsTrainedTooGetsItsGradient) {
  torch::manual_seed(8);
  torch::nn::Linear layer(6, 4);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 2});
  give_b_values(module);
  layer->weight.set_requires_grad(true);
  const at::Tensor x = torch::randn({3, 6});
  layer->forward(x).sum().backward();
  expect_near(layer->weight.grad(), torch::ones({4, 3}).matmul(x), "gradient of the weight");
  EXPECT_TRUE(lora_layers(module).at(0).second->lora_A().grad().defined());
}

TEST(LoRAMath, ToKeepsTheAdapterAndMovesIt) {
  torch::manual_seed(9);
  torch::nn::Linear layer(6, 4);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 2});
  give_b_values(module);
  module.to(torch::kDouble);
  EXPECT_TRUE(is_observed(layer->weight));
  EXPECT_EQ(layer->weight.scalar_type(), torch::kDouble);
  compare(
      module, [&](const at::Tensor& x) { return layer->forward(x); }, torch::randn({3, 6}, torch::kDouble));
}

TEST(LoRAMath, EveryThreadSeesTheAdapter) {
  torch::manual_seed(10);
  torch::nn::Linear layer(6, 4);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 2});
  give_b_values(module);
  const at::Tensor x = torch::randn({3, 6});
  const at::Tensor here = layer->forward(x).detach();
  at::Tensor there;
  std::thread([&] { there = layer->forward(x).detach(); }).join();
  EXPECT_TRUE(there.equal(here));
}

TEST(LoRAMath, MergedWeightsComputeTheSame) {
  for (const bool in_out : {false, true}) {
    torch::manual_seed(11);
    const auto linear = std::make_shared<torch::nn::LinearImpl>(8, 6);
    const auto conv = std::make_shared<huggingface::Conv1D>(8, 6);
    const auto call = [&](const at::Tensor& x) { return in_out ? conv->forward(x) : linear->forward(x); };
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : conv->parameters()) parameter.normal_();
    Holder module(in_out ? std::shared_ptr<torch::nn::Module>(conv) : std::shared_ptr<torch::nn::Module>(linear));
    const auto names = module.named_parameters().keys();
    apply_lora(module, {.target_modules = {"layer"}, .r = 3, .lora_alpha = 5.0});
    give_b_values(module);
    const at::Tensor x = torch::randn({7, 8}), adapted = call(x);
    const auto merged = merged_parameters(module);
    EXPECT_EQ(merged.size(), names.size());
    merge_lora(module);
    const at::Tensor once = call(x);
    expect_near(once, adapted, "merged");
    EXPECT_EQ(module.named_parameters().keys(), names);
    EXPECT_TRUE(lora_layers(module).empty());
    for (const auto& [name, value] : merged) EXPECT_TRUE(value.equal(module.named_parameters()[name])) << name;
    EXPECT_FALSE(is_observed(module.named_parameters()["layer.weight"]));
    merge_lora(module);
    EXPECT_TRUE(call(x).equal(once)) << "there is nothing more to merge";
  }
}

TEST(LoRAMath, AWeightThatOutlivesItsModuleIsPlain) {
  torch::manual_seed(12);
  at::Tensor weight;
  {
    torch::nn::Linear layer(6, 4);
    Holder module(layer.ptr());
    apply_lora(module, {.target_modules = {"layer"}, .r = 2});
    give_b_values(module);
    weight = layer->weight;
  }
  const at::Tensor x = torch::randn({3, 6});
  EXPECT_TRUE(at::linear(x, weight).equal(at::linear(x, without_observed_key(weight))));
}

}  // namespace
}  // namespace levin::lora_math_test
