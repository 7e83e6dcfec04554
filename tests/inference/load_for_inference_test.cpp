// From the files of a run to a model: which file, which class, which weights, how much memory, and what goes wrong.
#include "levin/inference/load_for_inference.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "inference/served_net.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/process/process_memory.h"
#include "levin/levin.h"
#include "levin/trainer/found_option.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::load_for_inference_test {
namespace {

namespace fs = std::filesystem;
using test::by_hand;
using test::holds;
using test::load_error;
using test::make_net;
using test::quiet_run;
using test::ServedNet;
using test::ServedNetOptions;
using test::some_rows;
using test::TemporaryFolder;
using test::tiny_loader;
using test::write_net;

constexpr const char* kCheckpoints = "levin_logs/version_0/checkpoints/";

TEST(LoadForInference, OptionsAreListed) {
  EXPECT_EQ(levin::testing::field_count<InferenceOptions>(), field_names<InferenceOptions>().size());
}

TEST(LoadForInference, MakesTheRegisteredClassWithItsOptionsAndWeights) {
  const TemporaryFolder folder;
  const auto net = make_net(5);
  Trainer trainer(quiet_run(folder));
  trainer.fit(*net, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  const InferenceModel model = load_for_inference(folder / "a.ckpt");
  const auto* found = dynamic_cast<const ServedNet*>(&model.module());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->options().width, 5);
  EXPECT_FALSE(found->has_trainer());
  const at::Tensor x = some_rows(7);
  EXPECT_TRUE(model.predict(x).equal(by_hand(*net, x)));
}

TEST(LoadForInference, OfAProgramsOwnModuleTheOptionsAreItsHyperParameters) {
  test::register_served_net();
  const TemporaryFolder folder;
  ServedNet net({.width = 6});
  const std::string path = write_net(folder, net);
  const InferenceModel model = load_for_inference(path);
  EXPECT_EQ(dynamic_cast<const ServedNet&>(model.module()).options().width, 6);
  EXPECT_TRUE(model.predict(some_rows(3)).equal(by_hand(net, some_rows(3))));
}

class NotRegistered : public ServedNet {
 public:
  explicit NotRegistered(ServedNetOptions options = {}) : ServedNet(options) {}
};

TEST(LoadForInference, OfAClassThatIsNotRegisteredTakesTheClassAsArgument) {
  const TemporaryFolder folder;
  NotRegistered net({.width = 7});
  const std::string path = write_net(folder, net);
  const InferenceModel model = load_for_inference<NotRegistered>(path);
  EXPECT_TRUE(model.predict(some_rows(3)).equal(by_hand(net, some_rows(3))));
  EXPECT_TRUE(holds(load_error(path), {path, "its model is a NotRegistered", "LEVIN_REGISTER_MODEL(NotRegistered",
                                       "load_for_inference<NotRegistered>(path)", "Known: "}));
}

TEST(LoadForInference, OfARunTakesTheBestCheckpointOrTheLast) {
  const TemporaryFolder folder;
  const auto net = make_net();
  TrainerOptions options = quiet_run(folder, 4);
  // The monitored value rises, so the first epoch is the best.
  options.callbacks = {LambdaCallback({.on_train_epoch_end =
                                           [](Trainer& t, LightningModule& m) {
                                             m.log("rises", static_cast<double>(t.current_epoch()));
                                           }}),
                       ModelCheckpoint({.monitor = "rises", .save_last = true, .mode = MonitorMode::min})};
  Trainer trainer(options);
  trainer.fit(*net, tiny_loader(24));
  const std::string run = folder / "levin_logs/version_0";
  const auto values_at = [](const std::string& path) { return load_for_inference(path).predict(some_rows(4)); };
  std::string best;
  for (const auto& entry : fs::directory_iterator(folder / kCheckpoints)) {
    if (!entry.path().filename().string().starts_with("last")) best = entry.path();
  }
  const at::Tensor of_best = values_at(best), of_last = values_at(run + "/checkpoints/last.ckpt");
  ASSERT_FALSE(of_best.equal(of_last));
  EXPECT_TRUE(values_at(run).equal(of_best));
  EXPECT_TRUE(load_for_inference(run, {.checkpoint = WhichCheckpoint::last}).predict(some_rows(4)).equal(of_last));
  EXPECT_TRUE(values_at(run + "/checkpoints").equal(of_last));  // no record names the best checkpoint
  // A moved run, and one without its record.
  fs::rename(run, folder / "moved");
  EXPECT_TRUE(values_at(folder / "moved").equal(of_best));
  fs::remove(folder / "moved/run.json");
  EXPECT_TRUE(values_at(folder / "moved").equal(of_last));
}

TEST(LoadForInference, TakesTheAverageOfARunThatAverages) {
  const TemporaryFolder folder;
  const auto net = make_net();
  TrainerOptions options = quiet_run(folder, 2);
  options.callbacks = {EMAWeightAveraging({.decay = 0.9}), ModelCheckpoint({.save_last = true})};
  Trainer(options).fit(*net, tiny_loader(24));
  const std::string last = folder / (std::string(kCheckpoints) + "last.ckpt");
  const State saved = read_checkpoint(last);
  ASSERT_FALSE(saved.part("current_model").tensors.empty());
  const InferenceModel model = load_for_inference(last);
  for (const auto& item : model.module().named_parameters()) {
    EXPECT_TRUE(item.value().equal(saved.tensor("model." + item.key()))) << item.key();
    EXPECT_FALSE(item.value().equal(saved.tensor("current_model." + item.key()))) << item.key();
  }
}

TEST(LoadForInference, OfWeightsAloneWorksToo) {
  const TemporaryFolder folder;
  const auto net = make_net();
  TrainerOptions options = quiet_run(folder, 1);
  options.callbacks = {ModelCheckpoint({.save_last = true, .save_weights_only = true})};
  Trainer(options).fit(*net, tiny_loader(24));
  const InferenceModel model = load_for_inference(folder / "levin_logs/version_0");
  EXPECT_TRUE(model.predict(some_rows(3)).equal(by_hand(*net, some_rows(3))));
}

TEST(LoadForInference, PrecisionComesFromTheRunUnlessADifferentOneIsGiven) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path =
      write_net(folder, *net, [](State& state) { state.set<std::string>("model_precision", "bf16-mixed"); });
  EXPECT_EQ(load_for_inference(path, {.device = "cpu"}).precision(), "bf16-mixed");
  const InferenceModel small = load_for_inference(path, {.precision = "bf16-true", .device = "cpu"});
  EXPECT_EQ(small.module().parameters()[0].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(small.predict(some_rows(3)).to(at::kFloat).allclose(by_hand(*net, some_rows(3)), 0.05, 0.05));
  const InferenceModel large = load_for_inference(path, {.precision = DoublePrecision(), .device = "cpu"});
  EXPECT_EQ(large.predict(some_rows(3)).scalar_type(), at::kDouble);
  const test::CapturedConsole console;
  EXPECT_EQ(load_for_inference(path, {.precision = "16-mixed", .device = "cpu"}).precision(), "bf16-mixed");
  EXPECT_TRUE(console.has("16-mixed is for GPUs")) << console.text();
}

TEST(LoadForInference, TakesWeightsOfADifferentFileAndOtherOptions) {
  const TemporaryFolder folder;
  const auto net = make_net(5);
  const std::string path = write_net(folder, *net);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : net->named_parameters()) tensors[item.key()] = torch::full_like(item.value(), 0.25).detach();
  for (const auto& item : net->named_buffers()) tensors[item.key()] = item.value();
  write_safetensors(folder / "other.safetensors", tensors);
  const InferenceModel model =
      load_for_inference(path, {.weights = WeightsOptions{.path = folder / "other.safetensors"}});
  EXPECT_TRUE(model.module().parameters()[0].eq(0.25).all().item<bool>());
  const InferenceModel calm = load_for_inference(path, {.init_args = {{"dropout", "0.125"}}});
  EXPECT_EQ(dynamic_cast<const ServedNet&>(calm.module()).options().dropout, 0.125);
  EXPECT_TRUE(holds(load_error(path, {.init_args = {{"width", "6"}}}),
                    {"the model is a ServedNet", "net.0.weight is (5, 4) in the file and (6, 4) in the module"}));
  EXPECT_TRUE(holds(load_error(path, {.init_args = {{"widht", "6"}}}), {"a.ckpt", "widht", "Did you mean \"width\""}));
}

TEST(LoadForInference, LeavesTheProgramsRandomNumbers) {
  const TemporaryFolder folder;
  const auto net = make_net();
  const std::string path = write_net(folder, *net);
  torch::manual_seed(11);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(11);
  (void)load_for_inference(path);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

// Keeps a table that only its own hooks know, in values and in a tensor.
class WithState : public ServedNet {
 public:
  explicit WithState(ServedNetOptions options = {}) : ServedNet(options) {}
  void on_save_checkpoint(State& checkpoint) override {
    checkpoint.set<double>("with_state_scale", 2.5);
    checkpoint.tensors["with_state.shift"] = torch::full({3}, 1.5);
  }
  void on_load_checkpoint(const State& checkpoint) override {
    scale = checkpoint.get<double>("with_state_scale");
    shift = checkpoint.tensor("with_state.shift");
    tensors_seen = checkpoint.tensors.size();
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override { return forward(batch[0]) * scale + shift; }

  double scale = 0;
  at::Tensor shift = torch::zeros({3});
  size_t tensors_seen = 0;
};

TEST(LoadForInference, GivesTheModuleWhatItHasSavedAndNothingOfTheOptimizer) {
  const TemporaryFolder folder;
  WithState net;
  const std::string path = write_net(folder, net);
  const InferenceModel model = load_for_inference<WithState>(path);
  EXPECT_EQ(dynamic_cast<const WithState&>(model.module()).tensors_seen, 1U);
  net.scale = 2.5;
  net.shift = torch::full({3}, 1.5);
  EXPECT_TRUE(model.predict(some_rows(3)).equal(by_hand(net, some_rows(3))));
}

struct FromDataOptions {
  int64_t classes = 0;
  static auto fields() { return levin::fields(field("classes", &FromDataOptions::classes, "0: the data's")); }
};

// Asks the run for the size of its head, as models do that take it from a data module.
class FromData : public LightningModule {
 public:
  using Options = FromDataOptions;
  explicit FromData(FromDataOptions options = {}) : options_(options) { save_hyperparameters(options); }
  void configure_model() override {
    if (options_.classes == 0) {
      if (!has_trainer()) throw ConfigError("FromDataOptions.classes: 0 asks the data. Set the number.");
      options_.classes = 5;
      keep_found_option(*this, "classes", options_.classes);
    }
    if (layer_.is_empty()) layer_ = register_module("layer", torch::nn::Linear(4, options_.classes));
  }
  at::Tensor forward(const at::Tensor& x) override { return layer_->forward(x); }
  at::Tensor training_step(const Batch& batch, int64_t) override { return forward(batch[0]).square().mean(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }

 private:
  FromDataOptions options_;
  torch::nn::Linear layer_{nullptr};
};

TEST(LoadForInference, KnowsAnOptionThatTheModuleHasTakenFromTheData) {
  auto& registry = Registry<LightningModule>::instance();
  if (registry.find("FromData") == nullptr) registry.add<FromData>("FromData", "a model of tests");
  const TemporaryFolder folder;
  const auto net = registry.make({"FromData", {}, {}}, "model");
  const std::string path = write_net(folder, *net);
  EXPECT_TRUE(load_for_inference(path).predict(some_rows(3)).equal(by_hand(*net, some_rows(3))));
  // A program's own module has no registered options to keep it in; the error names the remedy.
  FromData own;
  const std::string other = write_net(folder, own);
  EXPECT_TRUE(holds(load_error(other), {"FromDataOptions.classes: 0 asks the data"}));
  const InferenceModel model = load_for_inference(other, {.init_args = {{"classes", "5"}}});
  EXPECT_TRUE(model.predict(some_rows(3)).equal(by_hand(own, some_rows(3))));
}

// ---- memory -------------------------------------------------------------------------------------------------------

struct WideOptions {
  int64_t width = 1024;
  static auto fields() { return levin::fields(field("width", &WideOptions::width, "units")); }
};

class Wide : public LightningModule {
 public:
  using Options = WideOptions;
  explicit Wide(WideOptions options) {
    for (int k = 0; k < 16; ++k) net->push_back(torch::nn::Linear(options.width, options.width));
    register_module("net", net);
    save_hyperparameters(options);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};

// 64 MiB of weights, and as much of an optimizer.
std::string write_wide(const TemporaryFolder& folder) {
  const Wide wide({});
  State state;
  state.set<int64_t>("global_step", 1);
  state.set<bool>("weights_only", false);
  state.values.set("hyper_parameters", wide.hparams());
  for (const auto& item : wide.named_parameters()) {
    const at::Tensor value = item.value().detach();
    state.tensors["model." + item.key()] = value;
    state.tensors["optimizers.0.0." + item.key() + ".exp_avg"] = value.clone();
  }
  (void)write_checkpoint(folder / "wide.ckpt", state);
  return folder / "wide.ckpt";
}

#ifdef __SANITIZE_ADDRESS__
constexpr double kShadow = 1.0 / 8;  // what the sanitizer keeps of each byte
#else
constexpr double kShadow = 0;
#endif

// A suite of its own, and so a process of its own: a Trainer has freed memory kept for its next step.
TEST(LoadForInferenceMemory, HoldsTheWeightsOnceAndNeverMuchMore) {
  const TemporaryFolder folder;
  const std::string path = write_wide(folder);
  constexpr double weights = 16.0 * 1024 * 1024 * 4;
  (void)load_for_inference<Wide>(path).predict(torch::zeros({1, 1024}));  // what LibTorch keeps from a first call
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is as of now
  const ProcessMemory before = process_memory();
  ASSERT_LT(static_cast<double>(before.peak - before.resident), 0.05 * weights) << "the kernel did not reset the peak";
  const InferenceModel model = load_for_inference<Wide>(path);
  (void)model.predict(torch::zeros({1, 1024}));
  const ProcessMemory after = process_memory();
  const double kept = static_cast<double>(after.resident - before.resident) / weights;
  const double most = static_cast<double>(after.peak - before.resident) / weights;
  EXPECT_GT(kept, 0.7);  // some of it where freed memory was
  EXPECT_LT(kept, 1.1 + kShadow);
  EXPECT_LT(most, 1.5 + kShadow);
}

// ---- Hugging Face -------------------------------------------------------------------------------------------------

std::string huggingface_folder(const std::string& name) {
  return test::source_dir() + "/tests/models/data/" + name;
}

TEST(LoadForInference, OfAHuggingFaceFolderTakesItsHead) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  const auto gpt2 = AutoModelForCausalLM::from_pretrained(huggingface_folder("gpt2"));
  gpt2->save_pretrained(folder / "lm");
  const at::Tensor ids = torch::arange(12).view({2, 6});
  EXPECT_TRUE(load_for_inference(folder / "lm").predict(ids).equal(gpt2->forward({.input_ids = ids}).logits));
  const auto bert = AutoModelForSequenceClassification::from_pretrained(
      huggingface_folder("bert"), {.num_labels = 4, .ignore_mismatched_sizes = true});
  bert->save_pretrained(folder / "classifier");
  const at::Tensor tokens = ids + 1;  // none is padding
  EXPECT_TRUE(load_for_inference(folder / "classifier")
                  .predict(tokens)
                  .equal(bert->forward({.input_ids = tokens}).logits.argmax(-1)));
  // A checkpoint needs the folder's config.json alone.
  HuggingFaceClassifier tuned({.path = folder / "classifier", .num_labels = 4});
  Trainer trainer(quiet_run(folder, 1));
  const auto loader = std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{tokens, torch::tensor({1, 3})}, 2);
  trainer.fit(tuned, loader);
  trainer.save_checkpoint(folder / "tuned.ckpt");
  fs::remove(folder / "classifier/model.safetensors");
  const InferenceModel model = load_for_inference(folder / "tuned.ckpt", {.init_args = {{"from_scratch", "true"}}});
  tuned.eval();
  EXPECT_TRUE(dynamic_cast<const HuggingFaceClassifier&>(model.module())
                  .model()
                  ->forward({.input_ids = tokens})
                  .logits.equal(tuned.model()->forward({.input_ids = tokens}).logits));
  const auto bare = AutoModel::from_pretrained(huggingface_folder("bert"));
  bare->save_pretrained(folder / "bare");
  EXPECT_TRUE(holds(load_error(folder / "bare"), {"bare", "architectures", "BertModel", "AutoModel"}));
}

}  // namespace
}  // namespace levin::load_for_inference_test
