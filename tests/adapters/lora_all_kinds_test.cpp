// Embeddings, convolutions and linear layers adapted together: types, files, what cannot be.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "adapters/lora_truth.h"
#include "levin/checkpoint/safetensors.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::lora_all_kinds_test {
namespace {

using lora_truth::expect_near;
using lora_truth::Holder;
using test::error_of;
using test::holds;
namespace nn = torch::nn;

// An embedding, a convolution over its rows, and a linear layer.
struct Net : nn::Module {
  Net() {
    register_module("table", table);
    register_module("conv", conv);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) {
    return head->forward(torch::relu(conv->forward(table->forward(ids).transpose(1, 2))).mean(2));
  }
  nn::Embedding table{nn::EmbeddingOptions(16, 8)};
  nn::Conv1d conv{nn::Conv1dOptions(8, 8, 3)};
  nn::Linear head{8, 4};
};

void give_values(const nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, layer] : lora_layers(module)) {
    layer->lora_A().normal_(0, 0.3);
    layer->lora_B().normal_(0, 0.3);
  }
}

TEST(LoRAOfAllKinds, AutocastComputesThemInBfloat16) {
  torch::manual_seed(21);
  Net net;
  apply_lora(net, {.target_modules = {"table", "conv", "head"}, .r = 4});
  give_values(net);
  const at::Tensor ids = torch::randint(0, 16, {3, 7}, torch::kLong), whole = net.forward(ids);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor embedded = net.table->forward(ids), mixed = net.forward(ids);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(embedded.scalar_type(), at::kFloat) << "an embedding keeps its type";
  EXPECT_EQ(mixed.scalar_type(), at::kBFloat16);
  expect_near(mixed.to(at::kFloat), whole, "in bfloat16", 0.05);
  mixed.sum().backward();
  for (const auto& [name, layer] : lora_layers(net)) {
    EXPECT_EQ(layer->lora_A().grad().scalar_type(), at::kFloat) << name;
  }
}

TEST(LoRAOfAllKinds, ToMovesThemWithTheirLayers) {
  torch::manual_seed(22);
  Net net;
  apply_lora(net, {.target_modules = {"table", "conv"}, .r = 2});
  give_values(net);
  const at::Tensor ids = torch::randint(0, 16, {3, 7}, torch::kLong), before = net.forward(ids);
  net.to(torch::kDouble);
  EXPECT_EQ(net.named_parameters()["table.lora_embedding_A.weight"].scalar_type(), torch::kDouble);
  expect_near(net.forward(ids).to(torch::kFloat), before, "in float64");
}

TEST(LoRAOfAllKinds, OnlyLinearLayersAreQuantized) {
  torch::manual_seed(23);
  Net net;
  apply_lora(net, {.target_modules = {"table", "conv", "head"}, .r = 2, .quantize = Quantize::int8});
  const auto parameters = net.named_parameters();
  EXPECT_EQ(parameters["table.weight"].scalar_type(), torch::kFloat);
  EXPECT_EQ(parameters["conv.weight"].scalar_type(), torch::kFloat);
  EXPECT_EQ(parameters["head.weight"].scalar_type(), torch::kChar);
  Net other;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      apply_lora(other, {.target_modules = {"table", "conv"}, .quantize = Quantize::nf4});
                    }),
                    {"LoRAOptions.quantize: nf4", "linear layers", "target_modules names none"}));
}

TEST(LoRAOfAllKinds, FoldersHaveTheNamesAndShapesOfPeft) {
  const test::TemporaryFolder folder;
  torch::manual_seed(24);
  Net net, again;
  apply_lora(net, {.target_modules = {"table", "conv"}, .r = 4, .bias = LoRABias::lora_only});
  give_values(net);
  save_lora(net, folder / "a");
  const SafetensorsFile file(folder / "a/adapter_model.safetensors");
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& entry : file.entries()) shapes[entry.name] = file.read(entry).sizes().vec();
  const std::map<std::string, std::vector<int64_t>> wanted{{"base_model.model.table.lora_embedding_A", {4, 16}},
                                                           {"base_model.model.table.lora_embedding_B", {8, 4}},
                                                           {"base_model.model.conv.lora_A.weight", {4, 8, 3}},
                                                           {"base_model.model.conv.lora_B.weight", {8, 4, 1}},
                                                           {"base_model.model.conv.base_layer.bias", {8}}};
  EXPECT_EQ(shapes, wanted);
  {
    const torch::NoGradGuard no_grad;
    for (const char* name : {"table.weight", "conv.weight", "head.weight", "head.bias"}) {
      again.named_parameters()[name].copy_(without_observed_key(net.named_parameters()[name]));
    }
  }
  apply_lora(again, {.path = folder / "a"});
  const at::Tensor ids = torch::randint(0, 16, {3, 7}, torch::kLong);
  EXPECT_TRUE(again.forward(ids).equal(net.forward(ids)));
}

// PEFT writes and reads the frozen weights of embeddings of these names.
TEST(LoRAOfAllKinds, FrozenEmbeddingsOfPeftsNamesAreInTheFolder) {
  struct Tokens : nn::Module {
    nn::Embedding embed_tokens{register_module("embed_tokens", nn::Embedding(9, 4))};
    nn::Linear lm_head{register_module("lm_head", nn::Linear(4, 9))};
  };
  const test::TemporaryFolder folder;
  Tokens net, other;
  apply_lora(net, {.target_modules = {"embed_tokens", "lm_head"}, .r = 2});
  give_values(net);
  save_lora(net, folder / "a");
  const SafetensorsFile file(folder / "a/adapter_model.safetensors");
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  for (const char* name :
       {"base_model.model.embed_tokens.base_layer.weight", "base_model.model.lm_head.base_layer.weight"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  apply_lora(other, {.quantize = Quantize::int8, .path = folder / "a"});
  EXPECT_TRUE(without_observed_key(other.embed_tokens->weight).equal(without_observed_key(net.embed_tokens->weight)));
  const auto head = lora_layers(other).at(1).second;
  const at::Tensor near = head->merged(head->weight(), torch::zeros({2, 4}), torch::zeros({9, 2}));
  expect_near(near, without_observed_key(net.lm_head->weight), "the quantized head", 0.01);
  Tokens alone;
  apply_lora(alone, {.target_modules = {"*"}, .r = 2});
  save_lora(alone, folder / "b");
  EXPECT_EQ(SafetensorsFile(folder / "b/adapter_model.safetensors").entries().size(), 4) << "of patterns none";
}

// ---- what cannot be ------------------------------------------------------------------------------------------------

template <class Layer>
std::string refusal(const Layer& layer, LoRAOptions options = {}) {
  Holder module(layer.ptr());
  options.target_modules = {"layer"};
  const auto names = module.named_parameters().keys();
  std::string text = error_of<ConfigError>([&] { apply_lora(module, options); });
  EXPECT_EQ(module.named_parameters().keys(), names);
  return text;
}

TEST(LoRAOfAllKinds, LayersThatPeftCannotAdaptAreErrors) {
  EXPECT_TRUE(holds(refusal(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).padding(1).padding_mode(torch::kReflect))),
                    {"\"layer\" matches layer, a", "with a padding_mode other than zeros", "exclude_modules"}));
  EXPECT_TRUE(holds(refusal(nn::Conv1d(nn::Conv1dOptions(2, 2, 3).padding(torch::kSame).dilation(2))),
                    {"with padding \"same\" and a dilation"}));
  EXPECT_TRUE(holds(refusal(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 2, 3))),
                    {"LoRA adapts linear layers, embeddings and convolutions"}));
  EXPECT_TRUE(holds(refusal(nn::EmbeddingBag(4, 3)), {"LoRA adapts linear layers, embeddings and convolutions"}));
  EXPECT_TRUE(holds(refusal(nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(4)), {.r = 6}),
                    {"LoRAOptions.r: 6 is not a multiple of the 4 groups of layer", "exclude_modules"}));
}

TEST(LoRAOfAllKinds, AnExcludedLayerIsNotAnError) {
  struct Two : nn::Module {
    nn::Conv1d first{nullptr}, second{nullptr};
    Two() {
      const auto a = register_module("a", std::make_shared<nn::Module>()),
                 b = register_module("b", std::make_shared<nn::Module>());
      first = a->register_module("conv", nn::Conv1d(nn::Conv1dOptions(2, 2, 3)));
      second =
          b->register_module("conv", nn::Conv1d(nn::Conv1dOptions(2, 2, 3).padding(1).padding_mode(torch::kCircular)));
    }
  };
  Two both, one;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] { apply_lora(both, {.target_modules = {"conv"}}); }),
                    {"matches b.conv", "padding_mode"}));
  apply_lora(one, {.target_modules = {"conv"}, .exclude_modules = {"b.conv"}});
  EXPECT_EQ(lora_layers(one).size(), 1);
}

// Logits from an embedding's rows.
struct TiedHead : nn::Module {
  explicit TiedHead(const at::Tensor& rows) : weight(register_parameter("weight", rows)) {}
  at::Tensor weight;
};

struct Tied : nn::Module {
  nn::Embedding table{register_module("table", nn::Embedding(9, 4))};
  std::shared_ptr<TiedHead> head{register_module("head", std::make_shared<TiedHead>(table->weight))};
};

TEST(LoRAOfAllKinds, ASharedWeightHasOneAdapter) {
  Tied both, one;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      apply_lora(both, {.target_modules = {"table", "head"}});
                    }),
                    {"LoRAOptions.target_modules: table and head share one weight", "exclude_modules"}));
  apply_lora(one, {.target_modules = {"table"}, .r = 2});
  give_values(one);
  const at::Tensor ids = torch::arange(9), x = torch::randn({3, 4});
  const at::Tensor plain = without_observed_key(one.table->weight);
  EXPECT_FALSE(one.table->forward(ids).equal(plain));
  EXPECT_TRUE(at::linear(x, one.head->weight).equal(at::linear(x, plain)));
}

TEST(LoRAOfAllKinds, AWeightThatIsTiedToAHeadIsNotMerged) {
  Tied net;
  apply_lora(net, {.target_modules = {"table"}, .r = 2});
  give_values(net);
  const auto layer = lora_layers(net).at(0).second;
  const at::Tensor before = without_observed_key(layer->weight()).clone();
  EXPECT_TRUE(holds(error_of<Error>([&] { merge_lora(net); }),
                    {"LoRA: the adapter of table cannot be merged: its weight is the weight of head too",
                     "tied weights", "save_lora", "tie_word_embeddings"}));
  EXPECT_TRUE(before.equal(without_observed_key(layer->weight())));
  EXPECT_EQ(lora_layers(net).size(), 1) << "the adapter is still there";
  const test::TemporaryFolder folder;
  save_lora(net, folder / "apart");
  EXPECT_TRUE(std::filesystem::exists(folder / "apart/adapter_model.safetensors"));
}

}  // namespace
}  // namespace levin::lora_all_kinds_test
