// Parts of a run that a module or a data module may replace.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/data/data_module.h"
#include "levin/trainer/load_from_checkpoint.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::replaced_parts_test {
namespace {

using namespace test;

at::Tensor trained(TinyModule& module, TrainerOptions options = quiet(1, {})) {
  Trainer(std::move(options)).fit(module, tiny_loader(24));
  return module.layer->weight.detach().clone();
}

TEST(ReplacedParts, OptimizerStepMayWarmUpAndLeaveStepsOut) {
  struct Warm : TinyModule {
    void optimizer_step(int64_t epoch, int64_t batch_idx, Optimizer& optimizer) override {
      seen.emplace_back(epoch, batch_idx);
      if (batch_idx % 2 == 1) optimizer.step();
    }
    std::vector<std::pair<int64_t, int64_t>> seen;
  } module;
  struct ByHand : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
      return batch_idx % 2 == 1 ? loss : loss * 0;  // SGD does nothing with a gradient of zeros
    }
  } zeros;
  EXPECT_TRUE(torch::equal(trained(module), trained(zeros)));
  EXPECT_EQ(module.seen.size(), 6U);
  EXPECT_EQ(module.seen[4], (std::pair<int64_t, int64_t>(0, 4)));
}

TEST(ReplacedParts, BackwardGetsTheLossThatCounts) {
  struct Doubling : TinyModule {
    void backward(const at::Tensor& loss) override {
      losses.push_back(loss.item<double>());
      (loss * 2).backward();
    }
    std::vector<double> losses;
  } module;
  TinyModule plain;
  plain.make_optimizers = [](TinyModule& m) { return SGD(m.parameters(), {.lr = 0.2}); };  // twice the rate
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = 2;
  EXPECT_TRUE(torch::allclose(trained(module, options), trained(plain, options), 0, 1e-7));
  EXPECT_EQ(module.losses.size(), 6U);
  TinyModule after;  // the trainer of one module does not affect another module's
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(24));
  trainer.fit(after, tiny_loader(24));
  EXPECT_EQ(module.losses.size(), 12U);
}

TEST(ReplacedParts, AnEvaluationsModesAreTheModules) {
  struct Modes : TinyModule {
    void on_validation_model_eval() override { modes += "eval "; }  // leaves the layers training
    void on_validation_model_train() override { modes += "train "; }
    void validation_step(const Batch&, int64_t) override {
      modes += layer->is_training() ? "training " : "evaluating ";
    }
    void test_step(const Batch&, int64_t) override { modes += layer->is_training() ? "training " : "evaluating "; }
    std::string modes;
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.validate(module, tiny_loader(4));
  trainer.test(module, tiny_loader(4));
  EXPECT_EQ(module.modes, "eval training train evaluating ");
  EXPECT_TRUE(module.layer->is_training());
}

TEST(ReplacedParts, ADataModuleMayMoveItsBatches) {
  struct Moving : DataModule {
    std::shared_ptr<Loader> train_dataloader() override { return tiny_loader(8); }
    Batch transfer_batch_to_device(Batch batch, at::Device device, int64_t) override {
      ++moved;
      for (auto& tensor : batch.tensors) tensor = tensor.to(device);
      return batch;
    }
    int64_t moved = 0;
  } data;
  struct Counting : TinyModule {
    Batch transfer_batch_to_device(Batch batch, at::Device device, int64_t idx) override {
      ++moved;
      return TinyModule::transfer_batch_to_device(std::move(batch), device, idx);
    }
    int64_t moved = 0;
  } module;
  Trainer(quiet(1, {})).fit(module, data);
  EXPECT_EQ(data.moved, 2);
  EXPECT_EQ(module.moved, 0);  // the data module's counts
  Trainer(quiet(1, {})).fit(module, tiny_loader(8));
  EXPECT_EQ(module.moved, 2);
}

TEST(ReplacedParts, GathersATensorOfEveryRank) {
  struct Gathering : TinyModule {
    void on_train_end() override { all = all_gather(torch::tensor({1.0F, 2.0F})); }
    at::Tensor all;
  } module;
  Trainer(quiet(1, {})).fit(module, tiny_loader(4));
  EXPECT_TRUE(torch::equal(module.all, torch::tensor({{1.0F, 2.0F}})));
}

TEST(ReplacedParts, WithoutStrictLoadingWhatFitsIsLoaded) {
  const TemporaryFolder folder;
  TinyModule saved;
  Trainer trainer(quiet(1, {}));
  trainer.fit(saved, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  struct WithHead : TinyModule {
    torch::nn::Linear head{register_module("head", torch::nn::Linear(1, 2))};
  } module;
  EXPECT_TRUE(holds(error_of([&] { Trainer(quiet(1, {})).test(module, tiny_loader(4), folder / "a.ckpt"); }),
                    {"missing head.bias (2)", "set_strict_loading(false)"}));
  const at::Tensor before = module.head->weight.detach().clone();
  module.set_strict_loading(false);
  const CapturedConsole console;
  Trainer(quiet(1, {})).test(module, tiny_loader(4), folder / "a.ckpt");
  EXPECT_TRUE(torch::equal(module.layer->weight, saved.layer->weight));
  EXPECT_TRUE(torch::equal(module.head->weight, before));
  EXPECT_TRUE(console.has("these weights are left unchanged: missing head.bias (2)")) << console.text();
}

struct SizedOptions {
  int64_t width = 3;
  static auto fields() { return levin::fields(field("width", &SizedOptions::width, "outputs").min(1)); }
};

struct Sized : LightningModule {
  using Options = SizedOptions;
  explicit Sized(SizedOptions options = {}) : layer(register_module("layer", torch::nn::Linear(4, options.width))) {
    save_hyperparameters(options);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override { return layer->forward(batch[0]).square().mean(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
  torch::nn::Linear layer;
};

TEST(LoadFromCheckpoint, MakesTheModuleFromTheFilesOptionsAndWeights) {
  const TemporaryFolder folder;
  Sized trained_one({.width = 5});
  Trainer trainer(quiet(1, {}));
  trainer.fit(trained_one, tiny_loader(8));
  trainer.save_checkpoint(folder / "a.ckpt");
  const auto loaded = load_from_checkpoint<Sized>(folder / "a.ckpt");
  EXPECT_TRUE(torch::equal(loaded->layer->weight, trained_one.layer->weight));
  EXPECT_EQ(loaded->layer->weight.size(0), 5);
  TinyModule plain;
  Trainer other(quiet(1, {}));
  other.fit(plain, tiny_loader(8));
  other.save_checkpoint(folder / "b.ckpt");
  EXPECT_TRUE(torch::equal(load_from_checkpoint<TinyModule>(folder / "b.ckpt")->layer->weight, plain.layer->weight));
  EXPECT_TRUE(holds(error_of([&] { (void)load_from_checkpoint<Sized>(folder / "b.ckpt"); }),
                    {"b.ckpt: it holds no hyper-parameters", "save_hyperparameters(options)"}));
}

}  // namespace
}  // namespace levin::replaced_parts_test
