// Compares adapted embeddings and convolutions with the same computation written out.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adapters/lora_truth.h"
#include "levin/models/huggingface/layers.h"
#include "support/error_text.h"

namespace levin::lora_layers_test {
namespace {

using lora_truth::adapt;
using lora_truth::Call;
using lora_truth::compare;
using lora_truth::expect_near;
using lora_truth::Holder;
using lora_truth::Truth;
using test::error_of;
using test::holds;
namespace nn = torch::nn;

// ---- embeddings ----------------------------------------------------------------------------------------------------

// Rows of W + scaling * (B A)^T.
at::Tensor rows(const Truth& truth, const at::Tensor& ids) {
  const at::Tensor table = truth.weight + truth.scaling * truth.b.matmul(truth.a).t();
  return table.index({ids});
}

TEST(LoRAOfEmbeddings, AreTheClosedForm) {
  torch::manual_seed(1);
  const at::Tensor ids = torch::randint(0, 9, {4, 5}, torch::kLong);
  nn::Embedding plain(9, 6);
  const auto own = std::make_shared<huggingface::Embedding>(9, 6);
  {
    const torch::NoGradGuard no_grad;
    own->weight.normal_();
  }
  Holder first(plain.ptr()), second(own);
  adapt(first, {.r = 3, .lora_alpha = 5.0});
  adapt(second, {.r = 2, .use_rslora = true});
  compare(
      first, [&](const at::Tensor& x) { return plain->forward(x); }, rows, ids, "torch::nn");
  compare(
      second, [&](const at::Tensor& x) { return own->forward(x); }, rows, ids, "huggingface");
  compare(
      first, [&](const at::Tensor& x) { return at::embedding(plain->weight, x); }, rows, ids[0], "one sample");
}

TEST(LoRAOfEmbeddings, StartAsTheLayerWithZerosInANormalNumbersInB) {
  torch::manual_seed(2);
  nn::Embedding layer(40, 300);
  const at::Tensor ids = torch::arange(40), before = layer->forward(ids);
  Holder module(layer.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 8});
  EXPECT_TRUE(layer->forward(ids).equal(before));
  const auto parameters = module.named_parameters();
  const at::Tensor a = parameters["layer.lora_embedding_A.weight"], b = parameters["layer.lora_embedding_B.weight"];
  EXPECT_EQ(a.sizes(), at::IntArrayRef({8, 40}));
  EXPECT_EQ(b.sizes(), at::IntArrayRef({300, 8}));
  EXPECT_EQ(a.abs().max().item<float>(), 0);
  EXPECT_NEAR(b.std().item<double>(), 1, 0.06);
  EXPECT_NEAR(b.mean().item<double>(), 0, 0.06);
  EXPECT_TRUE(is_adapter_parameter("layer.lora_embedding_A.weight"));
}

TEST(LoRAOfEmbeddings, APaddingRowLearnsNothing) {
  torch::manual_seed(3);
  nn::Embedding layer(nn::EmbeddingOptions(7, 4).padding_idx(2));
  Holder module(layer.ptr());
  const auto adapter = adapt(module, {.r = 3});
  const at::Tensor ids = torch::tensor({2, 5, 2, 1});
  const Truth truth(module);
  expect_near(layer->forward(ids), rows(truth, ids), "its row is the table's own");
  layer->forward(ids).sum().backward();
  const at::Tensor gradient = adapter->lora_A().grad();
  EXPECT_EQ(gradient.select(1, 2).abs().max().item<float>(), 0);
  EXPECT_GT(gradient.select(1, 5).abs().max().item<float>(), 0);
}

TEST(LoRAOfEmbeddings, ScaleGradientsByFrequency) {
  torch::manual_seed(4);
  nn::Embedding layer(nn::EmbeddingOptions(5, 4).scale_grad_by_freq(true)), plain(5, 4);
  Holder module(layer.ptr()), other(plain.ptr());
  const auto scaled = adapt(module, {.r = 2});
  const auto unscaled = adapt(other, {.r = 2});
  {
    const torch::NoGradGuard no_grad;
    unscaled->lora_A().copy_(scaled->lora_A());
    unscaled->lora_B().copy_(scaled->lora_B());
  }
  const at::Tensor ids = torch::tensor({1, 3, 1, 1});
  layer->forward(ids).sum().backward();
  plain->forward(ids).sum().backward();
  const at::Tensor wanted = unscaled->lora_A().grad() / torch::tensor({1.0F, 3.0F, 1.0F, 1.0F, 1.0F});
  expect_near(scaled->lora_A().grad(), wanted, "token 1 is there three times");
}

TEST(LoRAOfEmbeddings, CutRowsToTheLargestNormAsPeft) {
  torch::manual_seed(5);
  nn::Embedding layer(nn::EmbeddingOptions(6, 4).max_norm(0.5).norm_type(2));
  Holder module(layer.ptr());
  const auto adapter = adapt(module, {.r = 3, .lora_alpha = 3.0});
  const Truth truth(module);
  const at::Tensor ids = torch::tensor({1, 4});
  const auto cut = [](const at::Tensor& row) { return row * (0.5 / row.norm()).clamp_max(1); };
  const at::Tensor y = layer->forward(ids).detach();
  for (int64_t k = 0; k < 2; ++k) {
    const int64_t id = ids[k].item<int64_t>();
    const at::Tensor wanted = cut(truth.weight[id]) + truth.b.matmul(cut(truth.a.select(1, id)));
    expect_near(y[k], wanted.detach(), "row", 1e-5);
  }
  EXPECT_TRUE(adapter->lora_A().select(1, 0).equal(truth.a.select(1, 0))) << "rows that are not used stay";
}

TEST(LoRAOfEmbeddings, HaveNoDropout) {
  torch::manual_seed(6);
  nn::Embedding layer(8, 4);
  Holder module(layer.ptr());
  adapt(module, {.r = 3, .lora_dropout = 0.9});
  module.train();
  const at::Tensor ids = torch::arange(8);
  expect_near(layer->forward(ids), rows(Truth(module), ids), "as PEFT's, which drops nothing of an index");
}

TEST(LoRAOfEmbeddings, ProductsOfATiedHeadAreTheWeightsOwn) {
  torch::manual_seed(7);
  nn::Embedding layer(9, 6);
  Holder module(layer.ptr());
  adapt(module, {.r = 3});
  const Truth truth(module);
  const at::Tensor x = torch::randn({2, 6});
  expect_near(at::linear(x, layer->weight), x.matmul(truth.weight.t()), "logits");
  expect_near(x.matmul(layer->weight.t()), x.matmul(truth.weight.t()), "logits");
}

TEST(LoRAOfEmbeddings, MergeIntoTheRows) {
  torch::manual_seed(8);
  nn::Embedding layer(9, 6);
  Holder module(layer.ptr());
  adapt(module, {.r = 3, .lora_alpha = 7.0});
  const at::Tensor ids = torch::arange(9), wanted = rows(Truth(module), ids).detach();
  const auto merged = merged_parameters(module);
  ASSERT_EQ(merged.size(), 1);
  expect_near(merged[0].second, wanted, "merged_parameters");
  merge_lora(module);
  EXPECT_EQ(module.named_parameters().keys(), std::vector<std::string>{"layer.weight"});
  EXPECT_FALSE(is_observed(layer->weight));
  expect_near(layer->forward(ids).detach(), wanted, "merge_lora");
}

// ---- convolutions --------------------------------------------------------------------------------------------------

struct ConvCase {
  std::string what;
  std::shared_ptr<nn::Module> layer;
  Call call;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)> operation;
  at::Tensor input;
};

template <class Layer>
Call forward_of(Layer layer) {
  return [layer](const at::Tensor& x) mutable { return layer->forward(x); };
}

std::vector<ConvCase> cases() {
  const nn::Conv1d one(nn::Conv1dOptions(3, 6, 5).stride(2).padding(1));
  const nn::Conv1d dilated(nn::Conv1dOptions(3, 6, 3).dilation(2).bias(false));
  const nn::Conv2d two(nn::Conv2dOptions(2, 5, {3, 2}).stride({1, 2}).padding({2, 0}));
  const nn::Conv2d point(nn::Conv2dOptions(4, 3, 1));
  const nn::Conv2d same(nn::Conv2dOptions(2, 5, 3).padding(torch::kSame));
  const nn::Conv3d three(nn::Conv3dOptions(2, 4, {2, 1, 3}).padding(1));
  using T = at::Tensor;
  return {
      {"conv1d", one.ptr(), forward_of(one),
       [](const T& x, const T& w, const T& b) { return at::conv1d(x, w, b, 2, 1); }, torch::randn({2, 3, 12})},
      {"a conv1d with dilation", dilated.ptr(), forward_of(dilated),
       [](const T& x, const T& w, const T& b) { return at::conv1d(x, w, b, 1, at::IntArrayRef(0), 2); },
       torch::randn({2, 3, 12})},
      {"conv2d", two.ptr(), forward_of(two),
       [](const T& x, const T& w, const T& b) {
         return at::conv2d(x, w, b, {1, 2}, at::IntArrayRef({2, 0}));
       },
       torch::randn({2, 2, 6, 7})},
      {"a conv2d of one sample", two.ptr(), forward_of(two),
       [](const T& x, const T& w, const T& b) {
         return at::conv2d(x, w, b, {1, 2}, at::IntArrayRef({2, 0}));
       },
       torch::randn({2, 6, 7})},
      {"a conv2d of size 1", point.ptr(), forward_of(point),
       [](const T& x, const T& w, const T& b) { return at::conv2d(x, w, b); }, torch::randn({2, 4, 5, 5})},
      {"a conv2d with padding same", same.ptr(), forward_of(same),
       [](const T& x, const T& w, const T& b) { return at::conv2d(x, w, b, 1, 1); }, torch::randn({2, 2, 6, 7})},
      {"conv3d", three.ptr(), forward_of(three),
       [](const T& x, const T& w, const T& b) { return at::conv3d(x, w, b, 1, 1); }, torch::randn({2, 2, 4, 5, 6})},
  };
}

// The kernel W + scaling * B A, B and A as matrices.
at::Tensor kernel(const Truth& truth) {
  return truth.weight + truth.scaling * truth.b.flatten(1).matmul(truth.a.flatten(1)).view(truth.weight.sizes());
}

TEST(LoRAOfConvolutions, AreTheClosedForm) {
  torch::manual_seed(11);
  for (const ConvCase& one : cases()) {
    Holder module(one.layer);
    adapt(module, {.r = 3, .lora_alpha = 5.0});
    const auto written = [&](const Truth& truth, const at::Tensor& x) {
      return one.operation(x, kernel(truth), truth.bias);
    };
    compare(module, one.call, written, one.input, one.what);
    merge_lora(module);
  }
}

TEST(LoRAOfConvolutions, MergeIntoTheKernel) {
  torch::manual_seed(12);
  for (const ConvCase& one : cases()) {
    Holder module(one.layer);
    const auto names = module.named_parameters().keys();
    adapt(module, {.r = 3, .use_rslora = true});
    const at::Tensor adapted = one.call(one.input).detach(), wanted = kernel(Truth(module)).detach();
    merge_lora(module);
    EXPECT_EQ(module.named_parameters().keys(), names);
    expect_near(module.named_parameters()["layer.weight"].detach(), wanted, one.what + ": the kernel");
    expect_near(one.call(one.input).detach(), adapted, one.what + ": merged", 1e-5);
  }
}

// LibTorch's operator below conv2d, and a class of one's own, as ViT's patches.
TEST(LoRAOfConvolutions, OtherOperatorsAndClassesAreAdapted) {
  struct Patches : nn::Module {
    at::Tensor weight = register_parameter("weight", torch::randn({5, 3, 2, 2}));
    at::Tensor bias = register_parameter("bias", torch::randn({5}));
  };
  torch::manual_seed(13);
  const auto patches = std::make_shared<Patches>();
  Holder module(patches);
  adapt(module, {.r = 2});
  const auto written = [](const Truth& truth, const at::Tensor& x) {
    return at::conv2d(x, kernel(truth), truth.bias, 2);
  };
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  compare(
      module, [&](const at::Tensor& i) { return at::conv2d(i, patches->weight, patches->bias, 2); }, written, x,
      "conv2d");
  compare(
      module,
      [&](const at::Tensor& i) {
        return at::convolution(i, patches->weight, patches->bias, {2, 2}, {0, 0}, {1, 1}, false, {0, 0}, 1);
      },
      written, x, "convolution");
  const Truth truth(module);
  const at::Tensor y = torch::randn({2, 5, 3, 3});
  expect_near(at::conv_transpose2d(y, patches->weight), at::conv_transpose2d(y, truth.weight), "transposed");
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      (void)at::conv2d(torch::randn({2, 15, 6, 6}), patches->weight, {}, 1, at::IntArrayRef(0), 1, 5);
                    }),
                    {"LoRA: layer is a convolution in 5 groups, which its class does not say", "exclude_modules"}));
}

// PEFT's lora_A sees all channels, and lora_B is in the layer's groups.
TEST(LoRAOfConvolutions, InGroupsMatchPeft) {
  torch::manual_seed(14);
  nn::Conv2d layer(nn::Conv2dOptions(4, 6, 3).groups(2).padding(1));
  Holder module(layer.ptr());
  const auto adapter = adapt(module, {.r = 4, .lora_alpha = 2.0});
  EXPECT_EQ(adapter->lora_A().sizes(), at::IntArrayRef({4, 4, 3, 3}));
  EXPECT_EQ(adapter->lora_B().sizes(), at::IntArrayRef({6, 2, 1, 1}));
  const auto written = [](const Truth& truth, const at::Tensor& x) {
    const at::Tensor hidden = at::conv2d(x, truth.a, {}, 1, 1);
    const auto halves = hidden.chunk(2, 1), bs = truth.b.chunk(2, 0);
    const at::Tensor update = at::cat({at::conv2d(halves[0], bs[0]), at::conv2d(halves[1], bs[1])}, 1);
    return at::conv2d(x, truth.weight, truth.bias, 1, 1, 1, 2) + truth.scaling * update;
  };
  compare(
      module, [&](const at::Tensor& x) { return layer->forward(x); }, written, torch::randn({2, 4, 5, 5}), "in groups");
  const auto names = module.named_parameters().keys();
  EXPECT_TRUE(holds(error_of<Error>([&] { merge_lora(module); }),
                    {"LoRA: the adapter of layer cannot be merged", "in 2 groups", "save_lora"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)merged_parameters(module); }), {"cannot be merged"}));
  EXPECT_EQ(module.named_parameters().keys(), names) << "nothing has changed";
}

TEST(LoRAOfConvolutions, StartAsLibTorchsDo) {
  torch::manual_seed(15);
  nn::Conv2d layer(nn::Conv2dOptions(8, 6, {5, 4})), other(nn::Conv2dOptions(8, 6, {5, 4}));
  const at::Tensor x = torch::randn({1, 8, 9, 9}), before = layer->forward(x);
  Holder module(layer.ptr()), second(other.ptr());
  apply_lora(module, {.target_modules = {"layer"}, .r = 4});
  EXPECT_TRUE(layer->forward(x).equal(before));
  const at::Tensor a = module.named_parameters()["layer.lora_A.weight"];
  EXPECT_EQ(a.sizes(), at::IntArrayRef({4, 8, 5, 4}));
  EXPECT_EQ(module.named_parameters()["layer.lora_B.weight"].sizes(), at::IntArrayRef({6, 4, 1, 1}));
  const double bound = 1 / std::sqrt(8.0 * 5 * 4);
  EXPECT_LE(a.abs().max().item<double>(), bound);
  EXPECT_NEAR(a.std().item<double>(), bound / std::sqrt(3.0), 0.1 * bound);
  apply_lora(second, {.target_modules = {"layer"}, .r = 4, .init_lora_weights = LoRAInit::gaussian});
  EXPECT_NEAR(second.named_parameters()["layer.lora_A.weight"].std().item<double>(), 1.0 / 4, 0.03);
}

TEST(LoRAOfConvolutions, DropoutDropsTheAdaptersInputsWhileTraining) {
  torch::manual_seed(16);
  nn::Conv1d layer(nn::Conv1dOptions(3, 4, 3));
  Holder module(layer.ptr());
  adapt(module, {.r = 2, .lora_dropout = 0.5});
  const Truth truth(module);
  const at::Tensor x = torch::randn({8, 3, 10});
  module.train();
  torch::manual_seed(17);
  const at::Tensor y = layer->forward(x);
  torch::manual_seed(17);
  const at::Tensor dropped = torch::dropout(x, 0.5, true);
  const at::Tensor wanted =
      at::conv1d(x, truth.weight, truth.bias) + truth.scaling * at::conv1d(at::conv1d(dropped, truth.a), truth.b);
  expect_near(y, wanted, "training");
  module.eval();
  expect_near(layer->forward(x), at::conv1d(x, kernel(truth), truth.bias), "evaluation");
}

}  // namespace
}  // namespace levin::lora_layers_test
