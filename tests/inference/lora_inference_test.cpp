// Models of runs that trained adapters, and adapters' folders on a base model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "inference/served_net.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/callbacks/lora.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/inference/load_for_inference.h"
#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::lora_inference_test {
namespace {

namespace fs = std::filesystem;
using test::by_hand;
using test::holds;
using test::load_error;
using test::make_net;
using test::quiet_run;
using test::ServedNet;
using test::some_rows;
using test::TemporaryFolder;
using test::tiny_loader;

// The scaling 5 / sqrt(3) has no short decimals.
const LoRAOptions kOptions{.target_modules = {"0", "4"}, .r = 3, .lora_alpha = 5.0, .use_rslora = true};
constexpr const char* kLast = "levin_logs/version_0/checkpoints/last.ckpt";

// A run of `net` with adapters; its last checkpoint.
std::string train(const TemporaryFolder& folder, LightningModule& net, const LoRAOptions& options,
                  bool weights_only = false) {
  TrainerOptions run = quiet_run(folder, 3);
  run.callbacks = {LoRA(options), ModelCheckpoint({.save_last = true, .save_weights_only = weights_only})};
  Trainer(std::move(run)).fit(net, tiny_loader(24));
  return folder / kLast;
}

TEST(LoRAInference, ARunsCheckpointPredictsBitwiseIdenticallyToItsModule) {
  for (const bool weights_only : {false, true}) {
    const TemporaryFolder folder;
    const auto net = make_net(16);
    const std::string path = train(folder, *net, kOptions, weights_only);
    const InferenceModel model = load_for_inference(path);
    EXPECT_EQ(lora_layers(model.module()).size(), 2U);
    EXPECT_TRUE(model.predict(some_rows(7)).equal(by_hand(*net, some_rows(7)))) << "weights only: " << weights_only;
    EXPECT_TRUE(
        load_for_inference(folder / "levin_logs/version_0").predict(some_rows(7)).equal(by_hand(*net, some_rows(7))));
    // The adapters count: without them it is another function.
    for (auto& parameter : net->named_parameters()) {
      if (parameter.key().ends_with("lora_B.weight")) parameter.value().data().zero_();
    }
    EXPECT_FALSE(model.predict(some_rows(7)).allclose(by_hand(*net, some_rows(7)), 1e-3, 1e-3));
  }
}

TEST(LoRAInference, RanksByLayerAndMagnitudesComeFromTheRun) {
  const LoRAOptions options{.target_modules = {"0", "4"},
                            .r = 3,
                            .lora_alpha = 5.0,
                            .rank_pattern = {{"4", 2}},
                            .alpha_pattern = {{"0", 7.0}},
                            .use_rslora = true,
                            .use_dora = true};
  for (const bool weights_only : {false, true}) {
    const TemporaryFolder folder;
    const auto net = make_net(16);
    const std::string path = train(folder, *net, options, weights_only);
    const InferenceModel model = load_for_inference(path);
    const auto layers = lora_layers(model.module());
    ASSERT_EQ(layers.size(), 2U);
    EXPECT_DOUBLE_EQ(layers[0].second->scaling(), 7 / std::sqrt(3.0));
    EXPECT_DOUBLE_EQ(layers[1].second->scaling(), 5 / std::sqrt(2.0));
    EXPECT_TRUE(model.predict(some_rows(7)).equal(by_hand(*net, some_rows(7)))) << "weights only: " << weights_only;
    const InferenceModel merged = load_for_inference(path, {.merge_lora = true});
    EXPECT_EQ(merged.module().named_parameters().size(), 6U);
    EXPECT_TRUE(merged.predict(some_rows(7)).allclose(by_hand(*net, some_rows(7)), 1e-5, 1e-6));
  }
}

TEST(LoRAInference, MergedWeightsAreTheSumWrittenOut) {
  const TemporaryFolder folder;
  const auto net = make_net(16);
  const std::string path = train(folder, *net, kOptions);
  const InferenceModel model = load_for_inference(path, {.merge_lora = true});
  EXPECT_TRUE(lora_layers(model.module()).empty());
  const State saved = read_checkpoint(path);
  const auto parameters = model.module().named_parameters();
  EXPECT_EQ(parameters.size(), 6U);
  for (const std::string name : {"net.0", "net.4"}) {
    const auto part = [&](const std::string& end) { return saved.tensor("model." + name + end).to(torch::kDouble); };
    const at::Tensor update = part(".lora_B.weight").mm(part(".lora_A.weight"));
    EXPECT_GT(update.abs().max().item<double>(), 1e-3) << name;
    const at::Tensor expected = part(".weight") + update * (5 / std::sqrt(3.0));
    EXPECT_LT((parameters[name + ".weight"].to(torch::kDouble) - expected).abs().max().item<double>(), 1e-6) << name;
  }
  EXPECT_TRUE(model.predict(some_rows(7)).allclose(by_hand(*net, some_rows(7)), 1e-5, 1e-6));
}

TEST(LoRAInference, QuantizedWeightsKeepTheirBits) {
  for (const Quantize quantize : {Quantize::int8, Quantize::nf4}) {
    const TemporaryFolder folder;
    const auto net = make_net(64);
    LoRAOptions options = kOptions;
    options.quantize = quantize;
    const std::string path = train(folder, *net, options);
    const InferenceModel model = load_for_inference(path);
    EXPECT_EQ(lora_layers(model.module()).front().second->options()->quantize, quantize);
    EXPECT_TRUE(model.predict(some_rows(7)).equal(by_hand(*net, some_rows(7))));
    const InferenceModel merged = load_for_inference(path, {.merge_lora = true});
    EXPECT_EQ(merged.module().parameters()[0].scalar_type(), at::kFloat);
    EXPECT_TRUE(merged.predict(some_rows(7)).allclose(by_hand(*net, some_rows(7)), 1e-4, 1e-5));
  }
}

TEST(LoRAInference, ManyThreadsAreBitwiseIdenticalToOne) {
  const TemporaryFolder folder;
  const auto net = make_net(16);
  const InferenceModel model = load_for_inference(train(folder, *net, kOptions));
  const at::Tensor rows = some_rows(6), expected = by_hand(*net, rows);
  std::atomic<int> differing = 0;
  {
    std::vector<std::jthread> threads;
    for (int k = 0; k < 6; ++k) {
      threads.emplace_back([&] {
        for (int n = 0; n < 100; ++n) differing += model.predict(rows).equal(expected) ? 0 : 1;
      });
    }
  }
  EXPECT_EQ(differing, 0);
}

// A layer whose name ends as an adapted one's does.
class Nested : public LightningModule {
 public:
  Nested() {
    torch::manual_seed(4);
    up = register_module("up", torch::nn::Linear(4, 8));
    block->push_back("up", torch::nn::Linear(8, 1));
    register_module("block", block);
  }
  at::Tensor forward(const at::Tensor& x) override { return block->forward(up->forward(x).tanh()); }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return torch::mse_loss(forward(batch[0]), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.05}); }
  torch::nn::Linear up{nullptr};
  torch::nn::Sequential block;
};

TEST(LoRAInference, AdaptsTheLayersOfTheRunAndNoOthers) {
  const TemporaryFolder folder;
  Nested net;
  const std::string path = train(folder, net, {.target_modules = {"up"}, .r = 2, .exclude_modules = {"block.up"}});
  const InferenceModel model = load_for_inference<Nested>(path);
  const auto layers = lora_layers(model.module());
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers[0].first, "up");
  EXPECT_TRUE(model.predict(some_rows(5)).equal(by_hand(net, some_rows(5))));
}

// A layer of each kind that LoRA adapts.
class Mixed : public LightningModule {
 public:
  Mixed() {
    torch::manual_seed(4);
    table = register_module("table", torch::nn::Embedding(2, 6));
    conv = register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(6, 4, 3).padding(1)));
    head = register_module("head", torch::nn::Linear(4, 1));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor rows = table->forward(x.gt(0).to(torch::kLong)).transpose(1, 2);
    return head->forward(conv->forward(rows).tanh().mean(2));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    return torch::mse_loss(forward(batch[0]), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.05}); }
  torch::nn::Embedding table{nullptr};
  torch::nn::Conv1d conv{nullptr};
  torch::nn::Linear head{nullptr};
};

TEST(LoRAInference, EmbeddingsAndConvolutionsHaveTheirAdaptersToo) {
  const TemporaryFolder folder;
  Mixed net;
  const std::string path = train(folder, net, {.target_modules = {"table", "conv", "head"}, .r = 2});
  const InferenceModel model = load_for_inference<Mixed>(path);
  EXPECT_EQ(lora_layers(model.module()).size(), 3U);
  EXPECT_TRUE(model.predict(some_rows(5)).equal(by_hand(net, some_rows(5))));
  const InferenceModel merged = load_for_inference<Mixed>(path, {.merge_lora = true});
  EXPECT_TRUE(lora_layers(merged.module()).empty());
  EXPECT_TRUE(merged.predict(some_rows(5)).allclose(by_hand(net, some_rows(5)), 1e-5, 1e-6));
}

TEST(LoRAInference, LeavesTheProgramsRandomNumbers) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = train(folder, *net, kOptions);
  torch::manual_seed(11);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(11);
  (void)load_for_inference(path);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST(LoRAInference, WeightsOfADifferentFileHaveAdaptersOrNone) {
  const TemporaryFolder folder;
  const auto net = make_net(16);
  const std::string path = train(folder, *net, kOptions);
  State state = read_checkpoint(path);
  state.tensors["model.net.4.lora_B.weight"].mul_(2);
  (void)write_checkpoint(folder / "other.ckpt", state);
  const auto values = [&](const std::string& weights) {
    return load_for_inference(path, {.weights = WeightsOptions{.path = folder / weights}}).predict(some_rows(5));
  };
  const at::Tensor doubled = values("other.ckpt");
  merge_lora(*net);
  (void)write_checkpoint(folder / "merged.ckpt", [&] {
    State merged;
    merged.values = state.values;
    for (const auto& item : net->named_parameters()) merged.tensors["model." + item.key()] = item.value().detach();
    for (const auto& item : net->named_buffers()) merged.tensors["model." + item.key()] = item.value();
    return merged;
  }());
  EXPECT_TRUE(values("merged.ckpt").equal(by_hand(*net, some_rows(5))));
  EXPECT_FALSE(doubled.allclose(by_hand(*net, some_rows(5)), 1e-4, 1e-4));
}

// ---- files without the scaling of their adapters
// -----------------------------------------------------------------

// Weights alone, from before they named the scaling.
std::string without_scaling(const std::string& path) {
  State state = read_checkpoint(path);
  EXPECT_TRUE(state.values.erase("lora_scaling"));
  state.values.erase("callbacks");
  (void)write_checkpoint(path, state);
  return path;
}

TEST(LoRAInference, OfAnOlderFileTheConfigurationDefinesHowAdaptersAreScaled) {
  const TemporaryFolder folder;
  const auto net = make_net(16);
  const std::string path = without_scaling(train(folder, *net, kOptions, true));
  const std::string run = folder / "levin_logs/version_0";
  const std::string message = load_error(path);
  EXPECT_TRUE(
      holds(message, {path, "it holds LoRA's adapters of 2 layers (net.0, …)", "weights alone",
                      "no config.yaml has a callback LoRA (looked for ", run + "/checkpoints/config.yaml, ",
                      run + "/config.yaml)", "r and lora_alpha under trainer.callbacks in " + run + "/config.yaml"}))
      << message;
  folder.write("levin_logs/version_0/config.yaml", "trainer: {callbacks: [{class_path: EarlyStopping}]}\n");
  EXPECT_TRUE(holds(load_error(path), {run + "/config.yaml has no callback LoRA"})) << load_error(path);
  folder.write("levin_logs/version_0/config.yaml",
               "trainer:\n  callbacks:\n    - EarlyStopping\n    - class_path: LoRA\n"
               "      init_args: {target_modules: ['0', '4'], r: 3, lora_alpha: 5, use_rslora: true}\n");
  EXPECT_TRUE(load_for_inference(path).predict(some_rows(7)).equal(by_hand(*net, some_rows(7))));
  folder.write("levin_logs/version_0/config.yaml", "trainer: {callbacks: {class_path: LoRA, init_args: {rank: 3}}}\n");
  EXPECT_TRUE(holds(load_error(path), {"config.yaml:1:", "rank"})) << load_error(path);
}

TEST(LoRAInference, AdaptersOfALayerThatTheClassLacksAreNamed) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = train(folder, *net, kOptions);
  State state = read_checkpoint(path);
  for (const char* part : {"lora_A", "lora_B"}) {
    state.tensors[std::string("model.gone.") + part + ".weight"] = torch::ones({3, 3});
  }
  (void)write_checkpoint(path, state);
  EXPECT_TRUE(holds(load_error(path), {path, "it has LoRA's adapters of gone, which the module does not have"}));
}

// ---- adapters that were trained apart
// --------------------------------------------------------------------------------

std::string gpt2_folder() {
  return test::source_dir() + "/tests/models/data/gpt2";
}

at::Tensor token_ids() {
  return torch::arange(12).view({2, 6});
}

// A language model with adapters that do something, and their folder.
std::shared_ptr<PretrainedModel> adapted_gpt2(const std::string& folder) {
  const auto model = AutoModelForCausalLM::from_pretrained(gpt2_folder());
  torch::manual_seed(8);
  apply_lora(*model, {.target_modules = {"c_attn", "c_fc"}, .r = 2, .lora_alpha = 6.0});
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.key().ends_with("lora_B.weight")) item.value().normal_(0, 0.3);
  }
  save_lora(*model, folder);
  model->eval();
  return model;
}

TEST(LoRAInference, AFolderOfPeftIsAppliedToItsBaseModel) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  const auto tuned = adapted_gpt2(folder / "adapter");
  const torch::NoGradGuard no_grad;
  const at::Tensor expected = tuned->forward({.input_ids = token_ids()}).logits;
  const InferenceModel model = load_for_inference(gpt2_folder(), {.adapter = folder / "adapter"});
  EXPECT_TRUE(model.predict(token_ids()).equal(expected));
  EXPECT_FALSE(load_for_inference(gpt2_folder()).predict(token_ids()).allclose(expected, 1e-2, 1e-2));
  const InferenceModel merged = load_for_inference(gpt2_folder(), {.adapter = folder / "adapter", .merge_lora = true});
  EXPECT_TRUE(merged.predict(token_ids()).allclose(expected, 1e-4, 1e-4));
  // The adapter's own path, where its configuration names the base model's.
  EXPECT_TRUE(holds(load_error(folder / "adapter"),
                    {"adapter is an adapter, and its adapter_config.json does not name its base model",
                     "Give the path of the base model, and this folder as adapter in InferenceOptions"}));
  const auto name_base = [&](const std::string& base) {
    std::string text = read_file(folder / "adapter/adapter_config.json");
    const size_t begin = text.find("\"base_model_name_or_path\":"), end = text.find(',', begin);
    text.replace(begin, end - begin, "\"base_model_name_or_path\": \"" + base + "\"");
    folder.write("adapter/adapter_config.json", text);
  };
  name_base("openai-community/gpt2");
  EXPECT_TRUE(holds(load_error(folder / "adapter"), {"its base model \"openai-community/gpt2\" is not a folder"}));
  name_base(gpt2_folder());
  EXPECT_TRUE(load_for_inference(folder / "adapter").predict(token_ids()).equal(expected));
}

TEST(LoRAInference, AnAdapterThatCannotBeAppliedIsExplained) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  (void)adapted_gpt2(folder / "adapter");
  const auto net = make_net();
  const std::string plain = test::write_net(folder, *net);
  EXPECT_TRUE(
      holds(load_error(plain, {.adapter = folder / "adapter"}), {"adapter_model.safetensors adapts transformer.h.0"}))
      << load_error(plain, {.adapter = folder / "adapter"});
  EXPECT_TRUE(holds(load_error(plain, {.adapter = folder / "gone"}), {"gone", "adapter_config.json"}));
  const TemporaryFolder other;
  const std::string adapted = train(other, *make_net(), kOptions);
  EXPECT_TRUE(holds(load_error(adapted, {.adapter = folder / "adapter"}),
                    {"InferenceOptions.adapter: ", "cannot be applied: " + adapted + " has adapters of its own"}));
}

TEST(LoRAInference, ALanguageModelsRunPredictsTheSame) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  test::register_served_net();
  ConfigNode args = ConfigNode::map();
  args.set("path", ConfigNode::scalar(gpt2_folder(), true));
  args.set("lr", ConfigNode::scalar("0.05"));
  const auto module = Registry<LightningModule>::instance().make({"HuggingFaceLM", args, {}}, "model");
  TrainerOptions run = quiet_run(folder, 1);
  run.callbacks = {LoRA({.target_modules = {"c_attn", "c_fc"}, .r = 2})};
  Trainer trainer(std::move(run));
  trainer.fit(*module, std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{token_ids(), token_ids() + 1}, 2));
  trainer.save_checkpoint(folder / "lm.ckpt");
  const InferenceModel model = load_for_inference(folder / "lm.ckpt");
  EXPECT_EQ(lora_layers(model.module()).front().first.substr(0, 6), "model.");
  EXPECT_TRUE(model.predict(token_ids()).equal(by_hand(*module, token_ids())));
}

}  // namespace
}  // namespace levin::lora_inference_test
