// Adapters' folders that do not fit: the messages, and that the model stays unchanged.
#include "levin/adapters/peft_folder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>

#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "levin/libtorch/observed_weight.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::peft_folder_test {
namespace {

using test::error_of;
using test::holds;

struct Net : torch::nn::Module {
  explicit Net(int64_t width = 6) {
    up = register_module("up", torch::nn::Linear(4, width));
    head = register_module("head", torch::nn::Linear(width, 2));
  }
  torch::nn::Linear up{nullptr}, head{nullptr};
};

constexpr const char* kConfig = R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["up"],
  "unknown_key": [1, {"a": null}]})";

class PeftFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "a");
    config(kConfig);
    tensors({{"base_model.model.up.lora_A.weight", torch::ones({3, 4})},
             {"base_model.model.up.lora_B.weight", torch::ones({6, 3})}});
  }
  void config(const std::string& text) { folder_.write("a/adapter_config.json", text); }
  void tensors(const std::map<std::string, at::Tensor>& values) {
    write_safetensors(folder_ / "a/adapter_model.safetensors", values);
  }
  [[nodiscard]] LoRAOptions from_path() const { return {.path = folder_ / "a"}; }

  /// The message with which the folder is refused, and that nothing has changed.
  template <class Expected = CheckpointError>
  std::string refusal(LoRAOptions options = {}, int64_t width = 6) {
    Net module(width);
    options.path = folder_ / "a";
    const auto names = module.named_parameters().keys();
    std::string text = error_of<Expected>([&] { apply_lora(module, options); });
    EXPECT_EQ(module.named_parameters().keys(), names);
    for (const auto& parameter : module.parameters()) EXPECT_TRUE(parameter.requires_grad());
    return text;
  }

  test::TemporaryFolder folder_;
};

TEST_F(PeftFolders, AreReadWithTheirRankAndScaling) {
  Net module;
  apply_lora(module, from_path());
  const auto parameters = module.named_parameters();
  EXPECT_EQ(parameters["up.lora_A.weight"].sizes(), at::IntArrayRef({3, 4}));
  EXPECT_FALSE(parameters.contains("head.lora_A.weight"));
  const at::Tensor x = torch::randn({5, 4});
  const at::Tensor adapted = module.up->forward(x);
  // lora_alpha / r is 2, and A and B are ones.
  const at::Tensor update = 2 * 3 * x.sum(1, /*keepdim=*/true);
  const at::Tensor plain = x.matmul(without_observed_key(module.up->weight).t()) + module.up->bias;
  EXPECT_LE((adapted - plain - update).abs().max().item<double>(), 1e-5);
}

TEST_F(PeftFolders, AreWrittenAsTheyWereRead) {
  Net module;
  apply_lora(module, from_path());
  save_lora(module, folder_ / "b");
  const PeftFolder one = read_peft_folder(folder_ / "a"), other = read_peft_folder(folder_ / "b");
  EXPECT_EQ(other.options.r, one.options.r);
  EXPECT_EQ(other.options.lora_alpha, one.options.lora_alpha);
  EXPECT_EQ(other.options.target_modules, std::vector<std::string>{"up"});
  EXPECT_EQ(other.layers, one.layers);
  for (const auto& [name, value] : one.tensors) EXPECT_TRUE(value.equal(other.tensors.at(name))) << name;
}

TEST_F(PeftFolders, MissingFilesAndBrokenOnesAreErrors) {
  EXPECT_TRUE(holds(error_of<CheckpointError>([] {
                      Net module;
                      apply_lora(module, {.path = "/nowhere"});
                    }),
                    {"/nowhere: the folder has no adapter_config.json", "save_to"}));
  config("{");
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json", "not JSON at byte"}));
  config("[]");
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json: it is not a JSON object"}));
  config(R"({"peft_type": "LORA", "r": "three"})");
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json: r is \"three\"", "not of the type that PEFT writes"}));
  config(R"({"peft_type": "LORA", "r": 0})");
  EXPECT_TRUE(holds(refusal(), {"r is 0 and lora_alpha 8", "above 0"}));
  config(R"({"peft_type": "LORA", "bias": "some"})");
  EXPECT_TRUE(holds(refusal(), {"bias is \"some\"", "none, all or lora_only"}));
  config(kConfig);
  std::filesystem::remove(folder_ / "a/adapter_model.safetensors");
  EXPECT_TRUE(holds(refusal(), {"the folder has no adapter_model.safetensors"}));
  folder_.write("a/adapter_model.bin", "x");
  EXPECT_TRUE(holds(refusal(), {"adapter_model.bin, a pickle of Python", "python3 tools/convert_checkpoint.py "}));
}

TEST_F(PeftFolders, OtherMethodsAreErrors) {
  config(R"({"peft_type": "IA3"})");
  EXPECT_TRUE(holds(refusal(), {"its peft_type is \"IA3\", and Levin reads LORA"}));
  config(R"({"peft_type": "LORA", "lora_bias": true})");
  EXPECT_TRUE(holds(refusal(), {"lora_bias is true, which Levin's LoRA does not have", "merge_and_unload"}));
  config(R"({"peft_type": "LORA", "kasa_config": {"gamma": 1}})");
  EXPECT_TRUE(holds(refusal(), {"kasa_config is {\"gamma\":1}"}));
  config(R"({"peft_type": "LORA", "ensure_weight_tying": true})");
  EXPECT_TRUE(holds(refusal(), {"ensure_weight_tying is true, which Levin's LoRA does not have"}));
  config(kConfig);
  tensors({{"up.lora_A.weight", torch::ones({3, 4})}});
  EXPECT_TRUE(holds(refusal(), {"it has \"up.lora_A.weight\"", "begin with base_model.model."}));
  tensors({{"base_model.model.head.bias", torch::ones({2})}});
  EXPECT_TRUE(holds(refusal(), {"no tensor whose name ends with lora_A.weight or lora_embedding_A"}));
}

TEST_F(PeftFolders, AdaptersOfChangedWeightsAreErrors) {
  for (const char* word : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "something_new"}) {
    config(R"({"peft_type": "LORA", "r": 3, "init_lora_weights": ")" + std::string(word) + "\"}");
    EXPECT_TRUE(holds(refusal(), {"adapter_config.json: init_lora_weights is \"" + std::string(word) + "\"",
                                  "weights that were changed", "path_initial_model_for_weight_conversion"}));
  }
  for (const char* word : {"true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\""}) {
    config(R"({"peft_type": "LORA", "r": 3, "init_lora_weights": )" + std::string(word) + "}");
    Net module;
    EXPECT_EQ(error_of([&] { apply_lora(module, from_path()); }), "") << word;
  }
}

TEST_F(PeftFolders, ModulesToSaveThatTheModelLacksAreLeftOut) {
  config(R"({"peft_type": "LORA", "r": 3, "modules_to_save": ["classifier", "head", "score"]})");
  Net module;
  apply_lora(module, from_path());
  EXPECT_TRUE(module.head->weight.requires_grad());
  EXPECT_FALSE(module.up->bias.requires_grad());
}

// As in DistilBERT: pre_classifier next to classifier.
struct DeepNet : torch::nn::Module {
  DeepNet() {
    up = register_module("up", torch::nn::Linear(4, 6));
    pre_head = register_module("pre_head", torch::nn::Linear(6, 6));
    head = register_module("head", std::make_shared<Net>());
    tail = register_module("tail", torch::nn::Linear(2, 2));
  }
  torch::nn::Linear up{nullptr}, pre_head{nullptr}, tail{nullptr};
  std::shared_ptr<Net> head;  // of which head.head is a part
};

std::vector<std::string> trained(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad() && !is_adapter_parameter(item.key())) names.push_back(item.key());
  }
  return names;
}

// PEFT asks key.endswith(entry), without a dot.
TEST_F(PeftFolders, ModulesToSaveAreAllThatEndWithTheName) {
  const std::vector<std::string> names = {"pre_head.weight", "pre_head.bias",    "head.up.weight",
                                          "head.up.bias",    "head.head.weight", "head.head.bias"};
  const auto check = [&](const LoRAOptions& options) {
    DeepNet module;
    apply_lora(module, options);
    EXPECT_EQ(trained(module), names);
    save_lora(module, folder_ / "b");
    const PeftFolder saved = read_peft_folder(folder_ / "b");
    EXPECT_EQ(saved.options.modules_to_save, (std::vector<std::string>{"pre_head", "head"}));
    EXPECT_EQ(saved.tensors.size(), names.size() + 2);
    for (const auto& name : names) EXPECT_TRUE(saved.tensors.contains(name)) << name;
  };
  config(R"({"peft_type": "LORA", "r": 3, "modules_to_save": ["score", "head"]})");
  check(from_path());
  check({.target_modules = {"[u]p"}, .modules_to_save = {"head"}});
  check({.target_modules = {"[u]p"}, .modules_to_save = {"head.head", "hea[d]"}});
  check({.target_modules = {"[u]p", "pre_head"}, .modules_to_save = {"head"}});
}

TEST_F(PeftFolders, WhatTheyHoldBesidesAdaptersIsWrittenAgain) {
  const at::Tensor bias = torch::full({2}, 7.0), adapted = torch::full({6}, 8.0);
  tensors({{"base_model.model.up.lora_A.weight", torch::ones({3, 4})},
           {"base_model.model.up.lora_B.weight", torch::ones({6, 3})},
           {"base_model.model.up.base_layer.bias", adapted},
           {"base_model.model.tail.bias", bias}});
  DeepNet module;
  apply_lora(module, from_path());
  EXPECT_EQ(trained(module), std::vector<std::string>());
  save_lora(module, folder_ / "b");
  const SafetensorsFile file(folder_ / "b/adapter_model.safetensors");
  std::map<std::string, at::Tensor> saved;
  for (const auto& entry : file.entries()) saved[entry.name] = file.read(entry);
  EXPECT_EQ(saved.size(), 4);
  EXPECT_TRUE(saved.at("base_model.model.tail.bias").equal(bias));
  EXPECT_TRUE(saved.at("base_model.model.up.base_layer.bias").equal(adapted));
}

// What PEFT 0.21 writes with bias "all": the head's bias before training, and twice the one after it.
TEST_F(PeftFolders, BiasesOfSavedModulesMayBeThereTwice) {
  const at::Tensor bias = torch::full({2}, 7.0);
  std::map<std::string, at::Tensor> parts = {{"base_model.model.up.lora_A.weight", torch::ones({3, 4})},
                                             {"base_model.model.up.lora_B.weight", torch::ones({6, 3})},
                                             {"base_model.model.head.weight", torch::ones({2, 6})},
                                             {"base_model.model.head.bias", bias},
                                             {"base_model.model.head.modules_to_save.bias", bias.clone()},
                                             {"base_model.model.head.original_module.bias", torch::zeros({2})}};
  config(R"({"peft_type": "LORA", "r": 3, "bias": "all", "modules_to_save": ["head"]})");
  tensors(parts);
  Net module;
  apply_lora(module, from_path());
  EXPECT_TRUE(module.head->bias.equal(bias));
  EXPECT_TRUE(module.head->bias.requires_grad());
  parts["base_model.model.head.modules_to_save.bias"] = torch::zeros({2});
  tensors(parts);
  EXPECT_TRUE(holds(refusal(), {"adapter_model.safetensors: it has \"base_model.model.head.",
                                "another tensor for head.bias", "values differ", "save_pretrained"}));
}

TEST_F(PeftFolders, PatternsAreReadAsPeftReadsThem) {
  const auto scaling = [&](const std::string& patterns) {
    config(R"({"peft_type": "LORA", "r": 6, "lora_alpha": 6, )" + patterns + "}");
    Net module;
    apply_lora(module, from_path());
    return lora_layers(module).at(0).second->scaling();
  };
  EXPECT_EQ(scaling(R"("rank_pattern": {"up": 3})"), 2);
  EXPECT_EQ(scaling(R"("rank_pattern": {"^u[a-z]$": 3}, "alpha_pattern": {"p": 9, "u.": 12, "up": 1})"), 4)
      << "the first that matches the whole name or an end after a dot";
  EXPECT_EQ(scaling(R"-("rank_pattern": {"(?:.*p)": 3}, "use_rslora": true)-"), 6 / std::sqrt(3.0));
  const auto wrong = [&](const std::string& pattern) {
    config(R"({"peft_type": "LORA", "r": 3, "rank_pattern": )" + pattern + "}");
    return refusal();
  };
  EXPECT_TRUE(holds(wrong(R"({"up": 2.5})"), {"rank_pattern: \"up\" is 2.5", "no whole number above 0"}));
  EXPECT_TRUE(holds(wrong(R"({"up": 0})"), {"rank_pattern: \"up\" is 0"}));
  EXPECT_TRUE(holds(wrong(R"({"up": 1e300})"), {"rank_pattern: \"up\" is"}));
  EXPECT_TRUE(holds(wrong(R"(["up"])"), {"rank_pattern is [\"up\"], and no map"}));
  EXPECT_TRUE(holds(wrong(R"({"u(": 2})"), {"rank_pattern: the expression \"u(\" cannot be used"}));
  EXPECT_TRUE(holds(wrong(R"({"up": 2})"), {"up.lora_A.weight is (3, 4), and the model needs (2, 4) for r 2"}));
}

TEST(PeftPattern, AnExpressionThatNeedsMuchBacktrackingIsAnError) {
  const std::vector<std::string> layers = {std::string(40, 'a') + "!b"};
  int64_t steps = kMaxPatternSteps;
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)matching_layers("((a+)+)+b", layers, steps); }),
                    {"the expression \"((a+)+)+b\" cannot be matched", "limit"}));
}

TEST(PeftPattern, ExpressionsTakeTheirStepsFromOneBudget) {
  int64_t steps = 1'000'000;
  int64_t matched = 0;
  const std::string text = error_of<CheckpointError>([&] {
    for (; matched < 10'000; ++matched) (void)matching_layers(".*.*.*x17", {"transformer.h.17.attn.c_attn"}, steps);
  });
  EXPECT_TRUE(
      holds(text, {"the expression \".*.*.*x17\" and the expressions before it need more than", "steps. Give fewer"}));
  EXPECT_GT(matched, 10);
  EXPECT_LT(matched, 1000);
}

TEST(PeftPattern, AnExpressionForEachOfManyLayersIsWithinTheBudget) {
  std::vector<std::string> layers;
  for (int k = 0; k < 400; ++k) layers.push_back("model.layers." + std::to_string(k) + ".self_attn.q_proj");
  int64_t steps = kMaxPatternSteps;
  for (const std::string& layer : layers) {
    EXPECT_EQ(matching_layers("^" + layer, layers, steps), std::vector<std::string>{layer});
  }
  EXPECT_GT(steps, kMaxPatternSteps / 2);
}

TEST_F(PeftFolders, ExpressionsThatTogetherNeedTooManyStepsAreErrors) {
  std::string map;  // one is within the budget, and two are not: each expression takes 30 KB when it is compiled
  for (int k = 1; k <= 3000; ++k) map += (k > 1 ? ", " : "") + ("\"((xy){50}){50}" + std::to_string(k)) + "\": 2";
  config(R"({"peft_type": "LORA", "r": 3, "rank_pattern": {)" + map + "}}");
  EXPECT_EQ(read_peft_folder(folder_ / "a").layers.size(), 1);
  config(R"({"peft_type": "LORA", "r": 3, "rank_pattern": {)" + map + "}, \"alpha_pattern\": {" + map + "}}");
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json: alpha_pattern: the expression \"((xy){50}){50}",
                                "the expressions before it need more than 67108864 steps. Give fewer of them"}));
}

TEST_F(PeftFolders, OfDoRAHaveMagnitudes) {
  config(R"({"peft_type": "LORA", "r": 3, "use_dora": true})");
  EXPECT_TRUE(holds(refusal(), {"it has a lora_A of up and no lora_magnitude_vector for it"}));
  const std::map<std::string, at::Tensor> parts = {
      {"base_model.model.up.lora_A.weight", torch::ones({3, 4})},
      {"base_model.model.up.lora_B.weight", torch::ones({6, 3})},
      {"base_model.model.up.lora_magnitude_vector", torch::full({6}, 5.0)}};
  tensors(parts);
  Net module;
  apply_lora(module, from_path());
  // Rows of (W + s B A) with the norm 5.
  const at::Tensor sum = without_observed_key(module.up->weight) + 8.0 / 3 * 3;
  const at::Tensor rows = 5 * sum / sum.norm(2, 1, /*keepdim=*/true);
  const at::Tensor x = torch::randn({7, 4});
  EXPECT_LE((module.up->forward(x) - torch::linear(x, rows, module.up->bias)).abs().max().item<double>(), 1e-5);
  save_lora(module, folder_ / "b");
  EXPECT_EQ(read_peft_folder(folder_ / "b").options.use_dora, true);
  merge_lora(module);
  EXPECT_LE((module.up->weight - rows).abs().max().item<double>(), 1e-5);
  config(kConfig);
  EXPECT_TRUE(holds(refusal(), {"it has up.lora_magnitude_vector.weight, which the model does not have"}));
}

TEST_F(PeftFolders, AdaptersOfADifferentModelAreErrors) {
  EXPECT_TRUE(holds(refusal({}, 7), {"adapter_model.safetensors: up.lora_B.weight is (6, 3), and the model needs "
                                     "(7, 3) for r 3",
                                     "the model that the adapter was trained on"}));
  config(R"({"peft_type": "LORA", "r": 2})");
  EXPECT_TRUE(holds(refusal(), {"up.lora_A.weight is (3, 4), and the model needs (2, 4) for r 2"}));
  config(kConfig);
  const at::Tensor a = torch::ones({3, 4}), b = torch::ones({6, 3});
  tensors({{"base_model.model.upp.lora_A.weight", a}, {"base_model.model.upp.lora_B.weight", b}});
  EXPECT_TRUE(holds(refusal<ConfigError>(), {"adapts upp, which the model does not have", "Did you mean \"up\"?"}));
  tensors({{"base_model.model.up.lora_A.weight", a}});
  EXPECT_TRUE(holds(refusal(), {"it has a lora_A of up and no lora_B for it"}));
  tensors({{"base_model.model.up.lora_A.weight", a},
           {"base_model.model.up.lora_B.weight", b},
           {"base_model.model.tail.weight", a}});
  EXPECT_TRUE(holds(refusal(), {"it has tail.weight, which the model does not have"}));
  SetUp();
  config(R"({"peft_type": "LORA", "r": 3, "fan_in_fan_out": true})");
  EXPECT_TRUE(holds(refusal(), {"fan_in_fan_out is true, and the weight of up is (out, in)"}));
}

TEST_F(PeftFolders, AdaptersOfADifferentKindOfLayerAreErrors) {
  const at::Tensor a = torch::ones({3, 4}), b = torch::ones({6, 3});
  tensors({{"base_model.model.up.lora_embedding_A", a}, {"base_model.model.up.lora_embedding_B", b}});
  EXPECT_TRUE(holds(refusal(), {"it has up.lora_embedding_A.weight, which the model does not have"}));
  tensors({{"base_model.model.up.lora_A.weight", a.view({3, 4, 1, 1})},
           {"base_model.model.up.lora_B.weight", b.view({6, 3, 1, 1})}});
  EXPECT_TRUE(holds(refusal(), {"up.lora_A.weight is (3, 4, 1, 1), and the model needs (3, 4) for r 3"}));
}

TEST_F(PeftFolders, OptionsThatContradictTheFolderAreErrors) {
  EXPECT_TRUE(holds(refusal<ConfigError>({.r = 4}), {"LoRAOptions.r: 4, but", "adapter_config.json has 3"}));
  EXPECT_TRUE(holds(refusal<ConfigError>({.lora_alpha = 4.0}), {"LoRAOptions.lora_alpha: 4.0, but", "has 6.0"}));
  EXPECT_TRUE(holds(refusal<ConfigError>({.use_rslora = true}), {"LoRAOptions.use_rslora: true, but"}));
  EXPECT_TRUE(holds(refusal<ConfigError>({.target_modules = {"head"}}),
                    {"LoRAOptions.target_modules: the adapter in path", "Leave target_modules out"}));
  EXPECT_EQ(error_of([&] {
              Net module;
              LoRAOptions same = from_path();
              same.r = 3;
              apply_lora(module, same);
            }),
            "");
}

TEST(LoRASaving, NeedsAnAdapter) {
  Net module;
  EXPECT_TRUE(holds(error_of<Error>([&] { save_lora(module, "x"); }), {"save_lora x: the module has no adapters"}));
}

}  // namespace
}  // namespace levin::peft_folder_test
