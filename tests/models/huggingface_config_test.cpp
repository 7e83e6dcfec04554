#include <gtest/gtest.h>

#include <ctime>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/models/huggingface/family_configs.h"
#include "levin/models/huggingface/functional.h"
#include "levin/models/huggingface/pretrained_config.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"

namespace levin::huggingface_config_test {
namespace {

using test::error_of;
using test::holds;

PretrainedConfig config(const std::string& json) {
  return PretrainedConfig::parse(json, "m/config.json");
}

template <class Read>
std::string refused(Read read, const std::string& json) {
  return error_of<ConfigError>([&] { (void)read(config(json)); });
}

TEST(HuggingFaceConfig, KeepsWhatItDoesNotRead) {
  for (const char* name : {"bert", "gpt2", "llama", "vit"}) {
    const std::string path = test::source_dir() + "/tests/models/data/" + std::string(name) + "/config.json";
    EXPECT_EQ(PretrainedConfig::read(path).json(), read_file(path)) << name;
  }
  const std::string text =
      "{\n  \"zeta\": [],\n  \"model_type\": \"bert\",\n  \"eps\": 1e-12,\n  \"a\\\"b\": {\n"
      "    \"list\": [\n      1,\n      null,\n      true,\n      0.5\n    ]\n  },\n  \"none\": {}\n}\n";
  EXPECT_EQ(config(text).json(), text);
}

TEST(HuggingFaceConfig, HasLabels) {
  PretrainedConfig bert = config(R"({"model_type": "bert"})");
  EXPECT_EQ(bert.num_labels(), 2) << "as transformers leaves it out";
  EXPECT_TRUE(bert.labels().empty());
  bert.set_labels({"no", "yes", "maybe"});
  EXPECT_EQ(bert.num_labels(), 3);
  EXPECT_EQ(config(bert.json()).labels(), (std::vector<std::string>{"no", "yes", "maybe"}));
  bert.set_num_labels(3);
  EXPECT_EQ(bert.labels()[2], "maybe");
  bert.set_num_labels(1);
  EXPECT_EQ(bert.labels(), std::vector<std::string>{"LABEL_0"});
  EXPECT_EQ(config(R"({"model_type": "bert", "num_labels": 7})").num_labels(), 7);
  EXPECT_TRUE(
      holds(error_of<ConfigError>([] { (void)config(R"({"model_type": "bert", "id2label": {"1": "x"}})").labels(); }),
            {"m/config.json: id2label: \"1\" is not a number from 0 to 0"}));
}

// Looking each label up among those before it took minutes.
TEST(HuggingFaceConfig, HasAHundredThousandLabels) {
  const std::clock_t start = std::clock();
  std::vector<std::string> labels;
  for (int i = 0; i < 100'000; ++i) labels.push_back("label " + std::to_string(i));
  PretrainedConfig bert = config(R"({"model_type": "bert"})");
  bert.set_labels(labels);
  EXPECT_EQ(config(bert.json()).labels(), labels);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, test::kSanitized ? 50.0 : 5.0);
  bert.set_labels({"same", "other", "same"});
  EXPECT_EQ(bert.labels(), (std::vector<std::string>{"same", "other", "same"}));
  EXPECT_EQ(bert.find("label2id")->find("same")->text, "2") << "as a dict of Python";
}

TEST(HuggingFaceConfig, ReportsWhatIsNotAConfig) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { (void)config("{\"a\": "); }), {"m/config.json: not JSON at byte"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { (void)config("[]"); }), {"m/config.json: it is not a JSON object"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { (void)config("{}"); }), {"m/config.json: it has no \"model_type\""}));
  const test::TemporaryFolder folder;
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)PretrainedConfig::read(folder.path()); }),
                    {folder.path(), "the folder has no config.json"}));
  EXPECT_EQ(error_of<Error>([&] { (void)PretrainedConfig::read("no/such/model"); }),
            "no/such/model: no such file or folder. Give the folder of a model, which holds config.json.");
}

TEST(HuggingFaceConfig, RefusesAllThatChangesTheNumbersTogether) {
  const std::string text = refused(huggingface::read_bert_config, R"({"model_type": "bert",
      "position_embedding_type": "relative_key", "hidden_act": "prelu", "is_decoder": true, "hidden_size": 30,
      "add_cross_attention": true, "quantization_config": {"bits": 4}, "pruned_heads": {"0": [1]},
      "is_encoder_decoder": true, "pad_token_id": 40000, "num_hidden_layers": "two"})");
  EXPECT_TRUE(holds(text, {"m/config.json: position_embedding_type: must be \"absolute\"",
                           "m/config.json: hidden_act: unknown activation \"prelu\". Known: gelu,",
                           "m/config.json: is_decoder: must be false", "m/config.json: add_cross_attention: must be",
                           "m/config.json: hidden_size: must be a multiple of num_attention_heads (12), got 30",
                           "m/config.json: quantization_config: must be absent: the weights are quantized",
                           "m/config.json: pruned_heads: must be absent", "m/config.json: is_encoder_decoder: must be",
                           "m/config.json: pad_token_id: must be from 0 to vocab_size - 1 (30521), got 40000",
                           "m/config.json: num_hidden_layers: expected a whole number, got \"two\""}));
  EXPECT_TRUE(
      holds(refused(huggingface::read_bert_config, R"({"model_type": "roberta", "max_position_embeddings": 2})"),
            {"max_position_embeddings: must be above pad_token_id + 1"}));
  EXPECT_TRUE(holds(refused(huggingface::read_bert_config, R"({"model_type": "roberta", "pad_token_id": null})"),
                    {"pad_token_id: must be set"}));
  EXPECT_TRUE(holds(refused(huggingface::read_gpt2_config, R"({"model_type": "gpt2", "n_embd": 10, "n_head": 3,
                              "add_cross_attention": true})"),
                    {"n_embd: must be a multiple of n_head (3), got 10", "add_cross_attention: must be false"}));
  EXPECT_TRUE(holds(refused(huggingface::read_vit_config, R"({"model_type": "vit", "image_size": 30})"),
                    {"image_size: must be a multiple of patch_size (16), got 30"}));
}

TEST(HuggingFaceConfig, ReadsRotaryPositionsOfOldAndNewFiles) {
  const auto rope = [](const std::string& keys) {
    return huggingface::read_llama_config(config(R"({"model_type": "llama", )" + keys + "}")).rope;
  };
  EXPECT_EQ(rope(R"("rope_theta": 500000.0)").rope_theta, 500000);
  EXPECT_EQ(rope(R"("rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 5.0)").factor, 2);
  EXPECT_EQ(rope(R"("rope_scaling": {"type": "linear", "factor": 2.0})").rope_type, "linear");
  const auto llama3 = rope(R"("max_position_embeddings": 64, "rope_parameters": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1.5, "high_freq_factor": 4.0, "rope_theta": 7.0})");
  EXPECT_EQ(llama3.low_freq_factor, 1.5);
  EXPECT_EQ(llama3.original_max_position_embeddings, 64);
  const std::string text =
      refused(huggingface::read_llama_config, R"({"model_type": "llama", "rope_scaling": {"rope_type": "axial",
              "factor": 0.5, "partial_rotary_factor": 0.5}, "num_key_value_heads": 5, "is_causal": false})");
  EXPECT_TRUE(holds(
      text, {"m/config.json: rope_scaling.rope_type: must be default, linear, dynamic, llama3, yarn or longrope",
             "rope_scaling.factor: must be >= 1", "rope_scaling.partial_rotary_factor: must be 1: this family",
             "num_attention_heads: must be a multiple of num_key_value_heads (5), got 32", "is_causal: must be true"}));
  EXPECT_TRUE(holds(refused(huggingface::read_llama_config, R"({"model_type": "llama", "rope_parameters":
                              {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 4}})"),
                    {"rope_parameters.factor: must be set for rope_type llama3",
                     "rope_parameters.high_freq_factor: must be above low_freq_factor (4.0), got 4.0"}));
  EXPECT_TRUE(holds(refused(huggingface::read_llama_config, R"({"model_type": "llama", "rope_parameters": 3})"),
                    {"rope_parameters: expected a map, got 3"}));
}

TEST(HuggingFaceConfig, RefusesRotaryPositionsWithoutWhatTheyNeed) {
  const auto wrong = [](const std::string& rope, const std::string& type = "llama") {
    return refused(huggingface::read_llama_config,
                   R"({"model_type": ")" + type +
                       R"(", "hidden_size": 64, "num_attention_heads": 4, "rope_parameters": {)" + rope + "}}");
  };
  EXPECT_TRUE(holds(wrong(R"("rope_type": "linear")"), {"rope_parameters.factor: must be set for rope_type linear"}));
  EXPECT_TRUE(holds(wrong(R"("rope_type": "dynamic")"), {"rope_parameters.factor: must be set for rope_type dynamic"}));
  EXPECT_TRUE(
      holds(wrong(R"("rope_type": "longrope", "short_factor": [1, 2])"),
            {"short_factor: must have a number for each of a head's 8 pairs, has 2", "long_factor: must have"}));
  EXPECT_TRUE(holds(wrong(R"("rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 0)"),
                    {"original_max_position_embeddings: must be >= 1, got 0"}));
  EXPECT_TRUE(holds(wrong(R"("rope_type": "yarn", "factor": 2, "rope_theta": 1)"),
                    {"rope_theta: must not be 1 for rope_type yarn"}));
  EXPECT_TRUE(holds(wrong(R"("partial_rotary_factor": 0.45)", "phi3"),
                    {"partial_rotary_factor: must leave a multiple of 2 of a head's numbers, got 7"}));
  EXPECT_TRUE(
      holds(refused(huggingface::read_llama_config, R"({"model_type": "gemma", "use_bidirectional_attention": true})"),
            {"use_bidirectional_attention: must be false"}));
  EXPECT_TRUE(holds(
      refused(huggingface::read_distilbert_config, R"({"model_type": "distilbert", "dim": 30, "activation": "prelu"})"),
      {"dim: must be a multiple of n_heads (12), got 30", "activation: unknown activation"}));
}

TEST(HuggingFaceConfig, ReadsPhi3sOldNamesOfLongRope) {
  const auto phi = huggingface::read_llama_config(config(R"({"model_type": "phi3", "hidden_size": 64,
      "num_attention_heads": 4, "max_position_embeddings": 131072, "rope_scaling": {"type": "su",
      "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]}})"));
  EXPECT_EQ(phi.rope.rope_type, "longrope");
  EXPECT_EQ(phi.rope.original_max_position_embeddings, 4096);
  EXPECT_NEAR(phi.rope.table_scale, 1.190238, 1e-6) << "sqrt(1 + ln 32 / ln 4096), as published with Phi-3";
}

TEST(HuggingFaceConfig, KnowsWhichLayersHaveWindows) {
  const auto windows = [](const std::string& type, const std::string& keys) {
    return huggingface::read_llama_config(
               config(R"({"model_type": ")" + type + R"(", "num_hidden_layers": 3, )" + keys + "}"))
        .has_window;
  };
  using List = std::vector<bool>;
  EXPECT_EQ(windows("mistral", R"("sliding_window": 8)"), (List{true, true, true}));
  EXPECT_EQ(windows("mistral", R"("sliding_window": null)"), (List{false, false, false}));
  EXPECT_EQ(windows("llama", R"("sliding_window": 8)"), (List{false, false, false}));
  EXPECT_EQ(windows("qwen2", R"("sliding_window": 8, "max_window_layers": 1)"), (List{false, false, false}));
  EXPECT_EQ(windows("qwen2", R"("use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1)"),
            (List{false, true, true}));
  EXPECT_EQ(windows("qwen3", R"("use_sliding_window": true, "sliding_window": 8,
                                "layer_types": ["sliding_attention", "full_attention", "full_attention"])"),
            (List{true, false, false}));
  const auto wrong = [](const std::string& types) {
    return refused(huggingface::read_llama_config,
                   R"({"model_type": "qwen2", "num_hidden_layers": 2, "layer_types": )" + types + "}");
  };
  EXPECT_TRUE(holds(wrong(R"(["full_attention"])"), {"layer_types: must name num_hidden_layers (2) layers, names 1"}));
  EXPECT_TRUE(holds(wrong(R"(["sliding_attention", "conv"])"),
                    {"layer_types[0]: sliding_attention needs use_sliding_window and sliding_window",
                     "layer_types[1]: must be full_attention or sliding_attention, got \"conv\""}));
}

TEST(HuggingFaceConfig, NamesActivations) {
  EXPECT_TRUE(holds(error_of<Error>([] { (void)huggingface::activation("gelo"); }), {"unknown activation \"gelo\""}));
}

}  // namespace
}  // namespace levin::huggingface_config_test
