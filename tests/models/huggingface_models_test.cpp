// Tiny models as transformers wrote them (record_huggingface.py), and the numbers it computed with them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "levin/checkpoint/safetensors.h"
#include "levin/models/huggingface/auto_model.h"
#include "levin/models/huggingface/pretrained_model.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace levin::huggingface_models_test {
namespace {

using huggingface::Task;
using test::error_of;
using test::holds;

struct Recorded {
  const char* name;
  Task task;
};

constexpr Recorded kRecorded[] = {{"bert", Task::sequence_classification},
                                  {"bert_mlm", Task::masked_lm},
                                  {"roberta", Task::sequence_classification},
                                  {"gpt2", Task::causal_lm},
                                  {"llama", Task::causal_lm},
                                  {"mistral", Task::causal_lm},
                                  {"qwen3", Task::causal_lm},
                                  {"vit", Task::image_classification}};

std::string folder_of(const std::string& name) {
  return test::source_dir() + "/tests/models/data/" + name;
}

std::map<std::string, at::Tensor> peer_of(const std::string& name) {
  const SafetensorsFile file(folder_of(name) + "/peer.safetensors");
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : file.entries()) tensors[entry.name] = file.read(entry);
  return tensors;
}

std::shared_ptr<PretrainedModel> load(const Recorded& recorded) {
  return huggingface::model_from_pretrained(folder_of(recorded.name), recorded.task, {});
}

PretrainedConfig config(const std::string& json) {
  return PretrainedConfig::parse(json, "config.json");
}

TEST(HuggingFaceModels, GiveTheLogitsOfTransformers) {
  const torch::NoGradGuard no_grad;
  for (const Recorded& recorded : kRecorded) {
    const test::CapturedConsole console;
    const auto model = load(recorded);
    EXPECT_EQ(console.text(), "") << recorded.name;
    auto peer = peer_of(recorded.name);
    at::Tensor got =
        model->forward({peer["input_ids"], peer["attention_mask"], /*token_type_ids=*/{}, peer["pixel_values"]}).logits;
    at::Tensor wanted = peer["logits"];
    if (got.dim() == 3) {  // what stands at padding is nobody's
      const auto seen = peer["attention_mask"].to(torch::kBool);
      got = got.index({seen});
      wanted = wanted.index({seen});
    }
    EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-5) << recorded.name;
    EXPECT_EQ(model->config().architectures(), std::vector<std::string>{model->class_name()}) << recorded.name;
  }
}

TEST(HuggingFaceModels, GetGradientsForEveryParameter) {
  for (const Recorded& recorded : kRecorded) {
    const auto model = load(recorded);
    auto peer = peer_of(recorded.name);
    model->forward({peer["input_ids"], peer["attention_mask"], {}, peer["pixel_values"]})
        .logits.square()
        .sum()
        .backward();
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().grad().defined()) << recorded.name << " " << item.key();
    }
  }
}

TEST(HuggingFaceModels, StartAsTransformersStartsThem) {
  torch::manual_seed(3);
  const auto spread = [](const at::Tensor& tensor) { return tensor.std().item<double>(); };
  auto gpt = config(R"({"model_type": "gpt2", "vocab_size": 500, "n_embd": 96, "n_layer": 8, "n_head": 4,
                        "n_positions": 64, "initializer_range": 0.05})");
  const auto model = AutoModelForCausalLM::from_config(gpt);
  const auto named = model->named_parameters();
  EXPECT_NEAR(spread(named["transformer.wte.weight"]), 0.05, 0.001);
  EXPECT_NEAR(spread(named["transformer.h.0.attn.c_attn.weight"]), 0.05, 0.001);
  EXPECT_NEAR(spread(named["transformer.h.7.mlp.c_proj.weight"]), 0.05 / 4, 0.0003) << "1 / sqrt(2 n_layer)";
  EXPECT_EQ(named["transformer.h.0.attn.c_attn.bias"].abs().max().item<double>(), 0);
  EXPECT_TRUE(named["transformer.ln_f.weight"].eq(1).all().item<bool>());
  EXPECT_FALSE(named.contains("lm_head.weight")) << "tied";
  const auto bert = AutoModel::from_config(config(R"({"model_type": "roberta", "vocab_size": 300, "hidden_size": 64,
      "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 80})"));
  const auto words = bert->named_parameters()["embeddings.word_embeddings.weight"];
  EXPECT_NEAR(spread(words.slice(0, 2)), 0.02, 0.001);
  EXPECT_EQ(words[1].abs().max().item<double>(), 0) << "the row of padding";
  const auto vit = AutoModel::from_config(config(R"({"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 64, "image_size": 64, "patch_size": 8})"));
  EXPECT_NEAR(spread(vit->named_parameters()["embeddings.position_embeddings"]), 0.02, 0.001);
}

TEST(HuggingFaceModels, EveryFamilyTakesEveryShareOfDropout) {
  for (const char* type : {"bert", "distilbert", "gpt2", "llama", "phi3", "vit"}) {
    auto changed = config(R"({"model_type": ")" + std::string(type) + "\"}");
    huggingface::set_dropout(changed, 0.25);
    const std::string text = changed.json();
    size_t count = 0;
    for (size_t at = text.find("0.25"); at != std::string::npos; at = text.find("0.25", at + 1)) ++count;
    EXPECT_EQ(count, (std::map<std::string, size_t>{
                          {"bert", 3}, {"distilbert", 3}, {"gpt2", 4}, {"llama", 2}, {"phi3", 4}, {"vit", 2}})
                         .at(type))
        << text;
  }
}

TEST(HuggingFaceModels, SinusoidalPositionsStartAsSines) {
  const auto model = AutoModel::from_config(config(R"({"model_type": "distilbert", "vocab_size": 20, "dim": 8,
      "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "sinusoidal_pos_embds": true})"));
  const auto row = model->named_parameters()["embeddings.position_embeddings.weight"][3];
  for (int64_t i = 0; i < 8; ++i) {
    const double angle = 3 / std::pow(10000, static_cast<double>(i / 2 * 2) / 8);
    EXPECT_NEAR(row[i].item<double>(), i % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-6);
  }
}

TEST(HuggingFaceModels, AreInEvalModeAndDropNothing) {
  auto peer = peer_of("bert");
  const auto model = load(kRecorded[0]);
  EXPECT_FALSE(model->is_training());
  const auto run = [&] { return model->forward({peer["input_ids"], peer["attention_mask"]}).logits; };
  EXPECT_TRUE(run().equal(run()));
  model->train();
  EXPECT_FALSE(run().equal(run()));
  const auto undropped = AutoModelForSequenceClassification::from_pretrained(folder_of("bert"), {.dropout = 0.0});
  undropped->train();
  EXPECT_LE((undropped->forward({peer["input_ids"], peer["attention_mask"]}).logits - peer["logits"])
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

TEST(HuggingFaceModels, RefuseInputsThatTheyCannotTake) {
  const auto bert = load(kRecorded[0]);
  const auto ids = torch::full({2, 13}, 5, torch::kLong);
  EXPECT_TRUE(holds(error_of<Error>([&] { bert->forward({.input_ids = ids}); }),
                    {"bert: got samples of 13 tokens, and the model has 12 positions", "max_length"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { bert->forward({.pixel_values = ids}); }), {"bert: it reads text"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { bert->forward({.input_ids = ids[0]}); }), {"(batch, tokens), got (13)"}));
  EXPECT_TRUE(holds(error_of<Error>([&] { bert->forward({.input_ids = ids.slice(1, 0, 4), .attention_mask = ids}); }),
                    {"attention_mask must have the shape of input_ids, (2, 4), got (2, 13)"}));
  const auto vit = load(kRecorded[7]);
  EXPECT_TRUE(holds(error_of<Error>([&] { vit->forward({.input_ids = ids}); }), {"vit: it reads images"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      vit->forward({.pixel_values = torch::zeros({1, 3, 9, 8})});
                    }),
                    {"(3, 8, 8)", "got a batch of (1, 3, 9, 8)"}));
  auto text = config(R"({"model_type": "llama", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1,
                         "num_attention_heads": 2, "intermediate_size": 8})");
  const auto llama = AutoModelForSequenceClassification::from_config(text);
  EXPECT_EQ(llama->forward({.input_ids = ids.slice(0, 0, 1)}).logits.sizes(), at::IntArrayRef({1, 2}));
  EXPECT_TRUE(holds(error_of<Error>([&] { llama->forward({.input_ids = ids}); }), {"llama", "Set pad_token_id"}));
}

TEST(HuggingFaceModels, ReportNewHeadsAndRefuseOtherShapes) {
  const test::CapturedConsole console;
  const auto tokens = AutoModelForTokenClassification::from_pretrained(folder_of("bert_mlm"), {.num_labels = 4});
  EXPECT_TRUE(holds(console.text(), {"bert_mlm: loaded as BertForTokenClassification. newly initialized: "
                                     "classifier.bias, classifier.weight; not in the model: cls.predictions.bias",
                                     "has to be trained before the model is used"}));
  EXPECT_EQ(tokens->config().labels(), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"}));
  const auto other = [&](bool ignore) {
    return AutoModelForSequenceClassification::from_pretrained(folder_of("bert"),
                                                               {.num_labels = 5, .ignore_mismatched_sizes = ignore});
  };
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { (void)other(false); }),
                    {"data/bert: its weights do not fit: classifier.bias is (3) in the file and (5) in the model",
                     "ignore_mismatched_sizes"}));
  EXPECT_EQ(other(true)->config().num_labels(), 5);
  EXPECT_TRUE(console.has("of a different shape: classifier.bias is (3)"));
}

// Each would take all memory, or an hour, if the model were made first.
TEST(HuggingFaceModels, SizesThatTheWeightsCannotHaveAreRefusedFirst) {
  const std::string folder = folder_of("bert");
  const auto error_with = [&](std::initializer_list<std::pair<const char*, int64_t>> sizes, bool ignores = false) {
    PretrainedConfig changed = PretrainedConfig::read(folder);
    for (const auto& [key, size] : sizes) changed.set(key, size);
    return error_of<ConfigError>(
        [&] { (void)huggingface::model_from_files(folder, changed, Task::sequence_classification, ignores); });
  };
  EXPECT_TRUE(
      holds(error_with({{"num_hidden_layers", 100'000'000}, {"hidden_size", 1'000'000}}),
            {"bert/config.json: num_hidden_layers: is 100000000, and there are only ", " tensors in the weights of",
             "bert/config.json: hidden_size: is 1000000, and the largest dimension is ",
             "Give the config.json that was saved with them."}));
  EXPECT_TRUE(holds(error_with({{"num_hidden_layers", 100'000'000}, {"vocab_size", 1 << 30}}, /*ignores=*/true),
                    {"num_hidden_layers: is 100000000"}));
  EXPECT_TRUE(holds(error_with({{"vocab_size", 1 << 30}}), {"vocab_size: is 1073741824"}));
  // What is missing would be drawn anew.
  PretrainedConfig many = PretrainedConfig::read(folder);
  many.set("max_position_embeddings", int64_t{20'000'000});
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] {
                      (void)huggingface::model_from_files(folder, many, Task::sequence_classification, true);
                    }),
                    {"bert: the model of its config.json has ", " numbers that its weights do not have (",
                     "position_embeddings.weight has the most", "Give the config.json that was saved with them."}));
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      (void)AutoModel::from_config(
                          config(R"({"model_type": "gpt2", "n_embd": 4000000000, "n_head": 1, "n_layer": 1})"));
                    }),
                    {"config.json: a model of its sizes does not fit into memory", "or smaller sizes"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      (void)AutoModel::from_config(config(R"({"model_type": "gpt2", "n_layer": 100000000})"));
                    }),
                    {"config.json: n_layer: must be at most 10000, got 100000000."}));
}

TEST(HuggingFaceModels, SayWhichFamiliesAndTasksThereAre) {
  const auto make = [](const std::string& type, Task task) {
    return error_of<ConfigError>(
        [&] { (void)huggingface::model_from_config(config(R"({"model_type": ")" + type + "\"}"), task); });
  };
  EXPECT_TRUE(holds(make("qwen", Task::base), {"config.json: model_type: Levin has no \"qwen\"",
                                               "It has: bert, roberta", "Did you mean \"qwen2\"?"}));
  EXPECT_TRUE(holds(make("bert", Task::causal_lm),
                    {"config.json: model_type: bert has no causal language model", "masked language model"}));
  EXPECT_TRUE(holds(make("vit", Task::sequence_classification),
                    {"vit has no sequence classification", "image classification"}));
  EXPECT_TRUE(huggingface::has_task("llama", huggingface::Task::causal_lm));
  EXPECT_FALSE(huggingface::has_task("bert", huggingface::Task::causal_lm));
}

}  // namespace
}  // namespace levin::huggingface_models_test
