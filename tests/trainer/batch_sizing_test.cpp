// effective_batch_size and lr_scale: how many batches make a step, and what it does to learning rates.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/run/loader_set.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::batch_sizing_test {
namespace {

using namespace test;

TrainerOptions effective(int64_t samples) {
  TrainerOptions options = quiet(2, {});
  options.accumulate_grad_batches = EffectiveBatchSize{samples};
  return options;
}

at::Tensor weights_of(TrainerOptions options) {
  TinyModule module;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(32, 4));
  EXPECT_EQ(trainer.accumulate_grad_batches(), 4);
  EXPECT_EQ(trainer.global_step(), 4);
  return torch::cat({module.layer->weight.flatten(), module.layer->bias}).detach();
}

TEST(EffectiveBatchSize, IsSoManyBatchesOfTheLoader) {
  TrainerOptions counted = quiet(2, {});
  counted.accumulate_grad_batches = 4;
  EXPECT_TRUE(torch::equal(weights_of(effective(16)), weights_of(counted)));
}

TEST(EffectiveBatchSize, ThatIsNotAWholeNumberOfBatchesNamesAllNumbers) {
  TinyModule module;
  EXPECT_EQ(
      error_of([&] { Trainer(effective(18)).fit(module, tiny_loader(32, 4)); }),
      "TrainerOptions.accumulate_grad_batches.effective_batch_size: 18 samples are not a whole number of batches of 4 "
      "samples on 1 rank. Use a multiple of 4, or another batch size.");
  EXPECT_TRUE(
      has(error_of([&] { Trainer(effective(2)).fit(module, tiny_loader(32, 4)); }), "2 samples are not a whole"));
  EXPECT_TRUE(has(error_of([&] { Trainer(effective(0)).fit(module, tiny_loader(32, 4)); }),
                  "accumulate_grad_batches.effective_batch_size: must be >= 1, got 0"))
      << error_of([&] { Trainer(effective(0)).fit(module, tiny_loader(32, 4)); });
}

TEST(EffectiveBatchSize, NeedsALoaderThatTellsItsBatchSize) {
  struct Silent : Loader {
    void start(int64_t, int64_t) override {}
    bool next(Batch&) override { return false; }
    [[nodiscard]] std::optional<int64_t> num_batches() const override { return 3; }
  };
  TinyModule module;
  EXPECT_TRUE(has(error_of([&] { Trainer(effective(16)).fit(module, std::make_shared<Silent>()); }),
                  "16 samples cannot be counted, because the training loader does not report its batch size"));
}

TEST(EffectiveBatchSize, RefusesWhatDecidesToo) {
  TinyModule module;
  TrainerOptions options = effective(16);
  options.callbacks = {GradientAccumulationScheduler({.scheduling = {{0, 2}}})};
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(32, 4)); }),
                  "GradientAccumulationScheduler: TrainerOptions.accumulate_grad_batches.effective_batch_size is 16"));
  TinyModule manual;
  manual.set_automatic_optimization(false);
  EXPECT_TRUE(has(error_of([&] { Trainer(effective(16)).fit(manual, tiny_loader(32, 4)); }),
                  "has no meaning with manual optimization"));
  TinyModule closure;
  closure.make_optimizers = [](TinyModule& m) { return OptimizerConfig(LBFGS(m.parameters())); };
  EXPECT_TRUE(
      has(error_of([&] { Trainer(effective(16)).fit(closure, tiny_loader(32, 4)); }), "is not possible with LBFGS"));
}

/// The learning rates of a fit's first step, group by group, of two groups with 0.1 and 0.02.
std::vector<double> rates(TrainerOptions options, LrScale scale, int64_t batch_size = 4) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    SGD optimizer({m.layer->weight}, {.lr = 0.1});
    optimizer.add_param_group({.params = {m.layer->bias}, .lr = 0.02});
    return OptimizerConfig(std::move(optimizer), StepLR({.step_size = 1, .gamma = 0.5}));
  };
  options.lr_scale = scale;
  Trainer trainer(std::move(options));
  trainer.fit(module, tiny_loader(32, batch_size));
  std::vector<double> found;
  for (const auto& group : trainer.optimizers()[0].optimizer().param_groups()) {
    found.push_back(group.initial_lr);
    found.push_back(group.lr);  // after two epochs of StepLR
  }
  return found;
}

void expect_rates(const std::vector<double>& found, double first) {
  const std::vector<double> expected = {first, first / 4, first / 5, first / 20};
  ASSERT_EQ(found.size(), expected.size());
  for (size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 1e-15) << k;
}

TEST(LrScaleRule, MultipliesAllGroupsAndWhatSchedulersBeginWith) {
  CapturedConsole console;
  expect_rates(rates(effective(16), LrScale::linear), 0.4);
  EXPECT_TRUE(
      console.has("lr_scale linear: an optimizer step takes 16 samples, 4 batches accumulated, 4 times the configured "
                  "batch size of 4: learning rates are multiplied by 4."))
      << console.text();
  expect_rates(rates(effective(16), LrScale::sqrt), 0.2);
  expect_rates(rates(effective(16), LrScale::none), 0.1);
}

TEST(LrScaleRule, CountsBatchesThatAreAccumulatedHoweverTheyAreAskedFor) {
  CapturedConsole console;
  TrainerOptions accumulated = quiet(2, {});
  accumulated.accumulate_grad_batches = 4;
  expect_rates(rates(accumulated, LrScale::linear), 0.4);
  EXPECT_TRUE(console.has("16 samples, 4 batches accumulated, 4 times")) << console.text();
  expect_rates(rates(accumulated, LrScale::none), 0.1);
}

TEST(LrScaleRule, SaysNothingWhereAStepIsOneBatch) {
  CapturedConsole console;
  expect_rates(rates(effective(4), LrScale::linear), 0.1);
  EXPECT_FALSE(console.has("lr_scale"));
}

TEST(LrScaleRule, RefusesASchedulerWithRatesOfItsOwn) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1}), OneCycleLR({.max_lr = 0.5, .total_steps = 100}));
  };
  TrainerOptions options = effective(16);
  options.lr_scale = LrScale::linear;
  EXPECT_TRUE(has(error_of([&] { Trainer(options).fit(module, tiny_loader(32, 4)); }),
                  "TrainerOptions.lr_scale: OneCycleLR takes its learning rates from its own options"));
}

}  // namespace
}  // namespace levin::batch_sizing_test
