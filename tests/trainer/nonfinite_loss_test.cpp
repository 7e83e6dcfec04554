// What a run does about a loss that is nan or inf.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/optim/lbfgs.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::nonfinite_loss_test {
namespace {

using namespace test;

// Its loss is `value` in one batch of the first epoch.
struct Poisoned : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    at::Tensor loss = TinyModule::training_step(batch, batch_idx);
    steps.push_back(batch_idx);
    if (current_epoch() == 0 && (batch_idx == bad || always)) loss = loss * value;
    return loss;
  }
  void on_train_end() override { updates = trainer().global_step(); }
  int64_t updates = -1;
  int64_t bad = 2;
  bool always = false;
  double value = NAN;
  std::vector<int64_t> steps;
};

std::string run(Poisoned& module, NonFiniteLoss policy, Callbacks callbacks = {}, int64_t accumulate = 1) {
  TrainerOptions options = quiet(1, std::move(callbacks));
  options.nonfinite_loss = policy;
  options.accumulate_grad_batches = accumulate;
  return error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
}

// The run without these batches.
void fit_without(Poisoned& module, const std::set<int64_t>& batches) {
  module.bad = -1;
  const auto skip = [batches](Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) {
    if (batches.contains(batch_idx)) trainer.skip_batch();
  };
  Trainer(quiet(1, {LambdaCallback({.on_train_batch_start = skip})})).fit(module, tiny_loader(24));
}

// Reliability: nonfinite_loss.
TEST(NonFiniteLoss, StopsBeforeTheUpdateByDefault) {
  for (const double value : {NAN, INFINITY, -INFINITY}) {
    Poisoned module;
    module.value = value;
    const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(24)); });
    EXPECT_TRUE(has(error, "epoch 0, batch 2, global step 2") && has(error, std::isnan(value) ? "nan" : "inf"))
        << error;
    EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
    Poisoned two;  // the two batches before it
    TrainerOptions options = quiet(1, {});
    options.max_steps = 2;
    Trainer(options).fit(two, tiny_loader(24));
    EXPECT_TRUE(torch::equal(module.layer->weight, two.layer->weight));
  }
}

TEST(NonFiniteLoss, SkipGivesUpTheUpdateOfItsWindowAndReportsWhich) {
  const CapturedConsole console;
  Poisoned module;
  EXPECT_EQ(run(module, NonFiniteLoss::skip), "");
  EXPECT_TRUE(console.has("the loss is nan in epoch 0, batch 2, global step 2") && console.has("skipped"));
  EXPECT_EQ(module.updates, 5);
  EXPECT_EQ(module.steps.size(), 6U);
  Poisoned without;
  fit_without(without, {2});
  EXPECT_TRUE(torch::equal(module.layer->weight, without.layer->weight));
}

TEST(NonFiniteLoss, SkipGivesUpTheWholeAccumulationWindow) {
  const CapturedConsole console;
  Poisoned module;
  EXPECT_EQ(run(module, NonFiniteLoss::skip, {}, 2), "");
  EXPECT_EQ(module.updates, 2);  // of three windows
}

// A module with an optimizer that evaluates its batch several times.
struct PoisonedSearch : Poisoned {
  OptimizerConfig configure_optimizers() override { return LBFGS(parameters(), {.max_iter = 3}); }
};

TEST(NonFiniteLoss, SkipGivesUpTheUpdateOfAnOptimizerWithAClosure) {
  const CapturedConsole console;
  PoisonedSearch module;
  EXPECT_EQ(run(module, NonFiniteLoss::skip), "");
  EXPECT_TRUE(console.has("the loss is nan in epoch 0, batch 2") && console.has("skipped"));
  EXPECT_EQ(module.updates, 5);
  EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
  PoisonedSearch without;
  fit_without(without, {2});
  EXPECT_TRUE(torch::equal(module.layer->weight, without.layer->weight));
}

// Notes what its hook after each batch is given.
struct Noting : TinyModule {
  void on_train_batch_end(const at::Tensor& loss, const Batch&, int64_t) override {
    seen += !loss.defined() ? "none " : std::isfinite(loss.item().toDouble()) ? "finite " : "nan ";
  }
  std::string seen;
};

// In two epochs, with a nan in the fifth of six batches.
std::string losses_in_the_hook(Noting& module, const std::function<void(TrainerOptions&)>& change) {
  const CapturedConsole console;
  TrainerOptions options = quiet(2, {});
  options.nonfinite_loss = NonFiniteLoss::skip;
  change(options);
  at::Tensor inputs = torch::arange(24 * 4).view({24, 4}).to(at::kFloat) / 96;
  inputs[17].fill_(NAN);  // in batch 4
  const auto loader = std::make_shared<TensorLoader>(std::vector<at::Tensor>{inputs, torch::ones({24, 1})}, 4);
  return error_of([&] { Trainer(options).fit(module, loader); }) + module.seen;
}

TEST(NonFiniteLoss, IsHandedToTheHookAfterItsBatchInEveryWayOfComputingIt) {
  const std::string epoch = "finite finite finite finite nan finite ", expected = epoch + epoch;
  Noting plain, accumulating, cut, fitting, recorded, search;
  search.make_optimizers = [](TinyModule& m) { return OptimizerConfig(LBFGS(m.parameters(), {.max_iter = 3})); };
  EXPECT_EQ(losses_in_the_hook(plain, [](TrainerOptions&) {}), expected);
  EXPECT_EQ(losses_in_the_hook(accumulating, [](TrainerOptions& o) { o.accumulate_grad_batches = 2; }), expected);
  EXPECT_EQ(losses_in_the_hook(cut, [](TrainerOptions& o) { o.micro_batch_size = int64_t{2}; }), expected);
  EXPECT_EQ(losses_in_the_hook(fitting, [](TrainerOptions& o) { o.micro_batch_size = "auto"; }), expected);
  EXPECT_EQ(losses_in_the_hook(recorded, [](TrainerOptions& o) { o.record_steps = true; }), expected);
  EXPECT_EQ(losses_in_the_hook(search, [](TrainerOptions&) {}), expected);
}

struct Normed : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t) override { return net->forward(batch[0]).square().mean(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
  torch::nn::Sequential net = register_module(
      "net", torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 1)));
};

TEST(NonFiniteLoss, SkipLeavesTheRunningStatisticsFiniteInEveryWayOfComputingABatch) {
  const std::vector<std::function<void(TrainerOptions&)>> ways = {
      [](TrainerOptions&) {}, [](TrainerOptions& o) { o.accumulate_grad_batches = 2; },
      [](TrainerOptions& o) { o.record_steps = true; }, [](TrainerOptions& o) { o.micro_batch_size = 2; },
      [](TrainerOptions& o) { o.precision = "bf16-mixed"; }};
  for (size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    const CapturedConsole console;
    const auto statistics = [&](bool bad) {
      torch::manual_seed(1);
      Normed module;
      at::Tensor inputs = torch::rand({48, 2});
      if (bad) inputs[22][0] = NAN;  // in batch 5
      TrainerOptions options = quiet(1, {});
      options.nonfinite_loss = NonFiniteLoss::skip;
      if (bad || way != 2) ways[way](options);  // recorded steps equal the steps of a run without recordings
      if (!bad) {                               // the same run without the window of batch 5
        options.callbacks.push_back(
            LambdaCallback({.on_train_batch_start = [&](Trainer& trainer, auto&, auto&, int64_t b) {
              if (b == 5 || (way == 1 && b == 4)) trainer.skip_batch();
            }}));
      }
      Trainer(options).fit(module, std::make_shared<TensorLoader>(std::vector<at::Tensor>{inputs}, 4));
      const auto* norm = module.net[1]->as<torch::nn::BatchNorm1d>();
      return at::cat({norm->running_mean, norm->running_var});
    };
    EXPECT_TRUE(torch::equal(statistics(true), statistics(false)));
    EXPECT_TRUE(console.has("Its update is skipped")) << console.text();
  }
}

TEST(NonFiniteLoss, RollbackOfAnOptimizerWithAClosureGoesBackToTheCheckpoint) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  PoisonedSearch module;
  module.bad = 3;
  EXPECT_EQ(run(module, NonFiniteLoss::rollback,
                {ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 2})}),
            "");
  EXPECT_TRUE(console.has("epoch=0-step=2.ckpt")) << console.text();
  EXPECT_TRUE(module.layer->weight.isfinite().all().item<bool>());
}

TEST(NonFiniteLoss, AWindowThatWasCutDoesNotSpoilTheNextOne) {
  const CapturedConsole console;
  Poisoned module;
  module.bad = 0;  // the first of two batches; the epoch ends with it
  TrainerOptions options =
      quiet(2, {LambdaCallback(
                   {.on_train_batch_end = [](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t b) {
                     if (t.current_epoch() == 0 && b == 0) t.skip_rest_of_epoch();
                   }})});
  options.nonfinite_loss = NonFiniteLoss::skip;
  options.accumulate_grad_batches = 2;
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_EQ(module.updates, 3);  // the second epoch's windows, all of them
}

TEST(NonFiniteLoss, RollbackReturnsToTheNewestCheckpoint) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  Poisoned module;
  module.bad = 3;
  EXPECT_EQ(run(module, NonFiniteLoss::rollback,
                {ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 2})}),
            "");
  EXPECT_TRUE(console.has("epoch=0-step=2.ckpt") && console.has("batch 3")) << console.text();
  EXPECT_EQ(module.steps.size(), 6U);
  // Batch 2 was undone, batch 3 gave nothing.
  Poisoned same;
  fit_without(same, {2, 3});
  EXPECT_TRUE(torch::equal(module.layer->weight, same.layer->weight));
}

TEST(NonFiniteLoss, RollbackNeedsACheckpointAndGivesUpAfterThree) {
  const CapturedConsole console;
  Poisoned module;
  EXPECT_TRUE(has(run(module, NonFiniteLoss::rollback), "there is no checkpoint yet"));
  const TemporaryFolder folder;
  Poisoned hopeless;
  hopeless.bad = 2;
  struct Later : Poisoned {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      always = batch_idx >= 2;
      return Poisoned::training_step(batch, batch_idx);
    }
  } later;
  const std::string error =
      run(later, NonFiniteLoss::rollback, {ModelCheckpoint({.dirpath = folder.path(), .every_n_train_steps = 2})});
  EXPECT_TRUE(has(error, "4th time") && has(error, "did not help")) << error;
}

TEST(NonFiniteLoss, IgnoreTrainsOnAsLightningDoes) {
  Poisoned module;
  EXPECT_EQ(run(module, NonFiniteLoss::ignore), "");
  EXPECT_TRUE(module.layer->weight.isnan().any().item<bool>());
}

TEST(NonFiniteLoss, SkipAndRollbackAreRefusedInManualOptimization) {
  struct Manual : TinyModule {
    Manual() { set_automatic_optimization(false); }
  } module;
  TrainerOptions options = quiet(1, {});
  options.nonfinite_loss = NonFiniteLoss::skip;
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(24)); }), "nonfinite_loss: skip"));
}

}  // namespace
}  // namespace levin::nonfinite_loss_test
