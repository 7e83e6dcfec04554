// LoRA on models of files: Hugging Face's, with recomputation, and exported ones.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "levin/adapters/lora.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/lora.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/models/exported_model.h"
#include "levin/models/huggingface_classifier.h"
#include "levin/models/huggingface_lm.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::lora_models_test {
namespace {

using test::error_of;
using test::expect_same_bits;
using test::holds;
using test::module_tensors;
using test::quiet;

Callbacks lora(const LoRAOptions& options) {
  return {LoRA(options)};
}

std::string folder_of(const std::string& name) {
  return test::source_dir() + "/tests/models/data/" + name;
}

std::vector<at::Tensor> texts() {
  torch::manual_seed(5);
  auto ids = torch::randint(8, 20, {64, 6}, torch::kLong);
  const auto label = torch::randint(0, 2, {64}, torch::kLong);
  ids.select(1, 3).masked_fill_(label.to(torch::kBool), 7);
  return {ids, label};
}

Loaders text_loader() {
  return {std::make_shared<test::TensorLoader>(texts(), 8)};
}

HuggingFaceClassifierOptions classifier(const std::string& save_to = "") {
  return {.path = folder_of("bert"),
          .num_labels = 2,
          .dropout = 0.0,
          .ignore_mismatched_sizes = true,
          .lr = 0.02,
          .save_to = save_to};
}

const LoRAOptions kBert{
    .target_modules = {"query", "value", "*.intermediate.dense"}, .r = 4, .modules_to_save = {"classifier"}};

TEST(LoRAOfModels, TunesABertAndWritesItMergedAndApart) {
  const test::TemporaryFolder folder;
  const test::CapturedConsole console;
  torch::manual_seed(1);
  HuggingFaceClassifier module(classifier(folder / "merged"));
  LoRAOptions options = kBert;
  options.save_to = folder / "adapter";
  Trainer trainer(quiet(15, lora(options), folder.path()));
  const auto loss_of = [&](Trainer& of, LightningModule& m) { return of.validate(m, text_loader())[0].at("val_loss"); };
  const double before = loss_of(trainer, module);
  trainer.fit(module, text_loader());
  const double after = loss_of(trainer, module);
  EXPECT_LT(after, 0.5 * before);
  EXPECT_TRUE(console.has("adapter, an adapter in PEFT's layout")) << console.text();
  EXPECT_TRUE(module.named_parameters().contains("model.bert.encoder.layer.0.attention.self.query.lora_A.weight"));
  HuggingFaceClassifier merged({.path = folder / "merged"});
  Trainer plain(quiet(1, {}, folder.path()));
  EXPECT_NEAR(loss_of(plain, merged), after, 1e-5);
  torch::manual_seed(2);
  HuggingFaceClassifier apart(classifier());
  Trainer adapted(quiet(1, lora({.path = folder / "adapter"}), folder.path()));
  EXPECT_DOUBLE_EQ(loss_of(adapted, apart), after) << "the folder of the adapter has the classifier too";
  HuggingFaceClassifier more(classifier());
  apply_lora(*more.model(), {.path = folder / "adapter"});
  save_lora(*more.model(), folder / "again");
  EXPECT_EQ(read_file(folder / "again/adapter_model.safetensors"),
            read_file(folder / "adapter/adapter_model.safetensors"));
}

TEST(LoRAOfModels, TheAdaptersFolderHoldsTheBestCheckpointsWeightsOrTheLast) {
  for (const auto which : {WhichCheckpoint::best, WhichCheckpoint::last}) {
    const test::TemporaryFolder folder;
    const test::CapturedConsole console;
    torch::manual_seed(1);
    HuggingFaceClassifier module(classifier(folder / "merged"));
    LoRAOptions options = kBert;
    options.save_to = folder / "adapter";
    options.save_weights = which;
    const ModelCheckpoint keep({.dirpath = folder / "ck",
                                .filename = "best",
                                .monitor = "val_loss",
                                .save_last = true,
                                .mode = MonitorMode::max});  // the highest loss is the first
    Trainer(quiet(3, {LoRA(options), ModelCheckpoint(keep)}, folder.path())).fit(module, text_loader(), text_loader());
    const std::string word = which == WhichCheckpoint::best ? "best" : "last";
    EXPECT_TRUE(holds(console.text(), {"an adapter in PEFT's layout, with the " + word,
                                       "merged, a folder for from_pretrained, with the best checkpoint's weights"}));
    HuggingFaceClassifier apart(classifier()), merged({.path = folder / "merged", .num_labels = 2});
    Trainer adapted(quiet(1, lora({.path = folder / "adapter"}), folder.path()));
    (void)adapted.validate(apart, text_loader());
    const State saved = read_checkpoint(folder / "ck/" + word + ".ckpt").part("model");
    for (const auto& item : apart.named_parameters()) {
      if (is_adapter_parameter(item.key()) || item.key().find("classifier") != std::string::npos) {
        EXPECT_TRUE(item.value().equal(saved.tensor(item.key()))) << item.key();
      }
    }
    // W + alpha / r B A, with alpha 8 and r 4, of the best checkpoint.
    const State best = read_checkpoint(folder / "ck/best.ckpt").part("model");
    const std::string query = "model.bert.encoder.layer.0.attention.self.query.";
    const at::Tensor product = best.tensor(query + "lora_B.weight").mm(best.tensor(query + "lora_A.weight"));
    EXPECT_TRUE(
        merged.named_parameters()[query + "weight"].allclose(best.tensor(query + "weight") + 2 * product, 1e-5, 1e-7));
  }
}

TEST(LoRAOfModels, BlocksAreRecomputed) {
  const test::TemporaryFolder folder;
  using Recompute = std::optional<RecomputeOptions>;
  const auto run = [&](const Recompute& recompute) {
    torch::manual_seed(9);
    HuggingFaceClassifier module(classifier());
    LoRAOptions options = kBert;
    options.lora_dropout = 0.2;
    TrainerOptions trainer = quiet(2, lora(options), folder.path());
    if (recompute) trainer.recompute = *recompute;
    torch::manual_seed(4);
    Trainer(std::move(trainer)).fit(module, text_loader());
    return module_tensors(module);
  };
  const State plain = run(std::nullopt);
  const std::vector<std::string> blocks = {"model.bert.encoder.layer.*"};
  expect_same_bits(run(RecomputeOptions{.modules = blocks}), plain, "recomputed");
  expect_same_bits(run(RecomputeOptions{.modules = blocks, .keep = Keep::matmul}), plain, "keep: matmul");
}

TEST(LoRAOfModels, ExportedModulesAreAdapted) {
  const LoRAOptions options{.target_modules = {"first"}, .r = 2};
  ExportedModule module({.path = test::source_dir() + "/tests/models/data/mlp.pt2"});
  torch::manual_seed(1);
  const Loaders batches{std::make_shared<test::TensorLoader>(
      std::vector<at::Tensor>{torch::randn({24, 4}), torch::randint(0, 2, {24}, torch::kLong)}, 8)};
  const State before = module_tensors(module);
  Trainer(quiet(2, lora(options))).fit(module, batches);
  const State after = module_tensors(module);
  EXPECT_GT(after.tensors.at("first.lora_B.weight").abs().max().item<double>(), 0);
  EXPECT_TRUE(after.tensors.at("first.weight").equal(before.tensors.at("first.weight")));
}

TEST(LoRAOfModels, EmbeddingsOfABertAreTunedAndWrittenMergedAndApart) {
  const test::TemporaryFolder folder;
  torch::manual_seed(1);
  HuggingFaceClassifier module(classifier(folder / "merged"));
  Trainer trainer(quiet(15,
                        lora({.target_modules = {"*embeddings", "value"},
                              .r = 4,
                              .modules_to_save = {"classifier"},
                              .save_to = folder / "adapter"}),
                        folder.path()));
  const auto loss_of = [&](Trainer& of, LightningModule& m) { return of.validate(m, text_loader())[0].at("val_loss"); };
  const double before = loss_of(trainer, module);
  trainer.fit(module, text_loader());
  const double after = loss_of(trainer, module);
  EXPECT_LT(after, 0.5 * before);
  const auto parameters = module.named_parameters();
  for (const char* name : {"word_embeddings", "position_embeddings", "token_type_embeddings"}) {
    const std::string a = "model.bert.embeddings." + std::string(name) + ".lora_embedding_A.weight";
    ASSERT_TRUE(parameters.contains(a)) << a;
    EXPECT_GT(parameters[a].abs().max().item<float>(), 0) << a;
  }
  HuggingFaceClassifier merged({.path = folder / "merged"});
  Trainer plain(quiet(1, {}, folder.path()));
  EXPECT_NEAR(loss_of(plain, merged), after, 1e-5);
  HuggingFaceClassifier apart(classifier());
  Trainer adapted(quiet(1, lora({.path = folder / "adapter"}), folder.path()));
  EXPECT_DOUBLE_EQ(loss_of(adapted, apart), after);
}

TEST(LoRAOfModels, PatchesOfAVitAreTuned) {
  const test::TemporaryFolder folder;
  const auto vit = [](const std::string& save_to) {
    return HuggingFaceClassifierOptions{.path = folder_of("vit"), .dropout = 0.0, .lr = 0.05, .save_to = save_to};
  };
  HuggingFaceClassifier before(vit("")), after(vit(folder / "merged"));
  torch::manual_seed(3);
  const at::Tensor label = torch::arange(24).remainder(2);
  const at::Tensor images = torch::randn({24, 3, 8, 8}) + label.view({24, 1, 1, 1});
  const Loaders batches{std::make_shared<test::TensorLoader>(std::vector<at::Tensor>{images, label}, 8)};
  const auto loss_of = [&](Trainer& of, LightningModule& m) { return of.validate(m, batches)[0].at("val_loss"); };
  Trainer plain(quiet(1, {}, folder.path()));
  Trainer trainer(quiet(10, lora({.target_modules = {"patch_embeddings.projection"}, .r = 4}), folder.path()));
  const double at_first = loss_of(plain, before);
  trainer.fit(after, batches);
  const double adapted = loss_of(trainer, after);
  EXPECT_LT(adapted, 0.9 * at_first);
  const std::string name = "model.vit.embeddings.patch_embeddings.projection.";
  const auto own = after.named_parameters();
  EXPECT_EQ(own[name + "lora_A.weight"].sizes(), at::IntArrayRef({4, 3, 4, 4}));
  EXPECT_GT(own[name + "lora_B.weight"].abs().max().item<float>(), 0);
  EXPECT_TRUE(own[name + "weight"].equal(before.named_parameters()[name + "weight"]));
  HuggingFaceClassifier merged({.path = folder / "merged"});
  EXPECT_NEAR(loss_of(plain, merged), adapted, 1e-5);
}

HuggingFaceLMOptions gpt2(const std::string& save_to = "") {
  return {.path = folder_of("gpt2"), .dropout = 0.0, .lr = 0.02, .save_to = save_to};
}

Loaders token_loader() {
  torch::manual_seed(6);
  const at::Tensor ids = torch::randint(3, 16, {16, 7}, torch::kLong);
  return {std::make_shared<test::TensorLoader>(
      std::vector<at::Tensor>{ids.narrow(1, 0, 6).contiguous(), ids.narrow(1, 1, 6).contiguous()}, 8)};
}

// As in PEFT the adapter is the input embedding's alone.
TEST(LoRAOfModels, ATiedEmbeddingIsAdaptedForItsInputsAlone) {
  const test::TemporaryFolder folder;
  HuggingFaceLM module(gpt2()), apart(gpt2());
  Trainer trainer(quiet(3, lora({.target_modules = {"wte"}, .r = 4, .save_to = folder / "adapter"})));
  trainer.fit(module, token_loader());
  const auto own = module.named_parameters();
  EXPECT_GT(own["model.transformer.wte.lora_embedding_A.weight"].abs().max().item<float>(), 0);
  const double here = trainer.validate(module, token_loader())[0].at("val_loss");
  Trainer adapted(quiet(1, lora({.path = folder / "adapter"})));
  EXPECT_DOUBLE_EQ(adapted.validate(apart, token_loader())[0].at("val_loss"), here);
  EXPECT_TRUE(
      holds(error_of<Error>([&] { module.save_pretrained(folder / "merged"); }),
            {"LoRA: the adapter of transformer.wte cannot be merged: its weight is the weight of lm_head.weight too",
             "Keep the adapter apart", "tie_word_embeddings"}));
}

TEST(LoRAOfModels, AMergedFolderOfATiedEmbeddingIsRefusedBeforeTraining) {
  const test::TemporaryFolder folder;
  HuggingFaceLM module(gpt2(folder / "merged"));
  int64_t batches = 0;
  TrainerOptions run = quiet(1, lora({.target_modules = {"wte"}, .r = 4}));
  run.callbacks.push_back(
      LambdaCallback({.on_train_batch_end = [&](auto&, auto&, auto&, auto&, int64_t) { ++batches; }}));
  EXPECT_TRUE(holds(error_of<Error>([&] { Trainer(run).fit(module, token_loader()); }), {"cannot be merged", "wte"}));
  EXPECT_EQ(batches, 0);
}

TEST(LoRAOfModels, NamesWhatCannotBeAdapted) {
  EXPECT_TRUE(holds(
      error_of<ConfigError>([] {
        HuggingFaceClassifier bert(classifier());
        Trainer(quiet(1, lora({.target_modules = {"LayerNorm"}}))).fit(bert, text_loader());
      }),
      {"\"LayerNorm\" matches bert.", "LayerNorm", "LoRA adapts linear layers, embeddings and convolutions",
       "Linear layers: ", "Embeddings and convolutions: word_embeddings, position_embeddings, token_type_embeddings"}));
}

}  // namespace
}  // namespace levin::lora_models_test
