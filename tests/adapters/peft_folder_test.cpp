// Adapters' folders that do not fit: what is said, and that the model stays as it was.
#include "levin/adapters/peft_folder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/adapters/lora.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files.h"
#include "levin/dispatch/observed_weight.h"
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
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json: it is no JSON object"}));
  config(R"({"peft_type": "LORA", "r": "three"})");
  EXPECT_TRUE(holds(refusal(), {"adapter_config.json: r is \"three\"", "another type"}));
  config(R"({"peft_type": "LORA", "r": 0})");
  EXPECT_TRUE(holds(refusal(), {"r is 0 and lora_alpha 8", "above 0"}));
  config(R"({"peft_type": "LORA", "bias": "some"})");
  EXPECT_TRUE(holds(refusal(), {"bias is \"some\"", "none, all or lora_only"}));
  config(kConfig);
  std::filesystem::remove(folder_ / "a/adapter_model.safetensors");
  EXPECT_TRUE(holds(refusal(), {"the folder has no adapter_model.safetensors"}));
}

TEST_F(PeftFolders, OtherMethodsAreErrors) {
  config(R"({"peft_type": "IA3"})");
  EXPECT_TRUE(holds(refusal(), {"its peft_type is \"IA3\", and Levin reads LORA"}));
  config(R"({"peft_type": "LORA", "use_dora": true})");
  EXPECT_TRUE(holds(refusal(), {"use_dora is true, which Levin's LoRA does not have", "merge_and_unload"}));
  config(R"({"peft_type": "LORA", "rank_pattern": {"up": 2}})");
  EXPECT_TRUE(holds(refusal(), {"rank_pattern is {\"up\":2}"}));
  config(kConfig);
  tensors({{"base_model.model.up.lora_magnitude_vector", torch::ones({6})}});
  EXPECT_TRUE(holds(refusal(), {"it has up.lora_magnitude_vector", "has no DoRA"}));
  config(R"({"peft_type": "LORA", "ensure_weight_tying": true})");
  EXPECT_TRUE(holds(refusal(), {"ensure_weight_tying is true, which Levin's LoRA does not have"}));
  config(kConfig);
  tensors({{"up.lora_A.weight", torch::ones({3, 4})}});
  EXPECT_TRUE(holds(refusal(), {"it has \"up.lora_A.weight\"", "begin with base_model.model."}));
  tensors({{"base_model.model.head.bias", torch::ones({2})}});
  EXPECT_TRUE(holds(refusal(), {"no tensor whose name ends with lora_A.weight or lora_embedding_A"}));
}

TEST_F(PeftFolders, AdaptersOfAnotherModelAreErrors) {
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

TEST_F(PeftFolders, AdaptersOfAnotherKindOfLayerAreErrors) {
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
