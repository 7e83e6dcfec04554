// When the schedulers of a run are stepped, and with which metric.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/gradient_accumulation_scheduler.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/adam.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/two_players.h"

namespace levin::run_schedulers_test {
namespace {

using namespace test;

TinyModule& decaying(TinyModule& module, LRSchedulerOptions when) {
  module.make_optimizers = [when](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), StepLR({.step_size = 1, .gamma = 0.5}), when);
  };
  return module;
}

/// How often StepLR changed the rate.
double moves(Trainer& trainer) {
  return -std::log2(learning_rate(trainer));
}

TEST(Schedulers, EpochFrequencyCountsEpochs) {
  TinyModule module;
  Trainer trainer(quiet(5, {}));
  trainer.fit(decaying(module, {.frequency = 2}), tiny_loader(8));
  EXPECT_DOUBLE_EQ(moves(trainer), 2);
}

TEST(Schedulers, StepFrequencyCountsOptimizerStepsOfTheEpoch) {
  // 10 batches, windows of 2: 5 steps. Lightning would look at the batch index (1, 3, 5, 7, 9) + 1 and move at 6 only.
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = 2;
  Trainer trainer(options);
  trainer.fit(decaying(module, {.interval = Interval::step, .frequency = 3}), tiny_loader(40, 4));
  EXPECT_DOUBLE_EQ(moves(trainer), 1);

  TinyModule second;
  Trainer restarts(quiet(2, {}));
  restarts.fit(decaying(second, {.interval = Interval::step, .frequency = 3}), tiny_loader(40, 4));
  EXPECT_DOUBLE_EQ(moves(restarts), 6);  // at steps 3, 6 and 9 of each epoch
}

TEST(Schedulers, MoveOncePerWindow) {
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = 4;
  Trainer trainer(options);
  trainer.fit(decaying(module, {.interval = Interval::step}), tiny_loader(40, 4));
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_DOUBLE_EQ(moves(trainer), 3);
}

TinyModule& watching(TinyModule& module, const std::string& monitor, bool strict) {
  module.table = {1, 2, 3, 4};  // "v" gets worse every epoch
  module.make_optimizers = [=](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), ReduceLROnPlateau({.factor = 0.5, .patience = 0}),
                           {.monitor = monitor, .strict = strict});
  };
  return module;
}

TEST(Schedulers, PlateauWatchesItsMetric) {
  TinyModule module;
  Trainer trainer(quiet(4, {}));
  trainer.fit(watching(module, "v", true), tiny_loader(8), tiny_loader(8));
  EXPECT_DOUBLE_EQ(moves(trainer), 3);
}

TEST(Schedulers, PlateauWithoutItsMetricIsAnErrorUnlessConfiguredOtherwise) {
  TinyModule module;
  TrainerOptions unchecked = quiet(1, {});
  unchecked.num_sanity_val_steps = 0;
  const std::string error =
      error_of([&] { Trainer(unchecked).fit(watching(module, "val_los", true), tiny_loader(8), tiny_loader(8)); });
  EXPECT_TRUE(error.starts_with("lr_scheduler_step, epoch 0, ")) << error;
  EXPECT_TRUE(has(error, ": ReduceLROnPlateau: metric \"val_los\" was never logged by epoch 0")) << error;
  EXPECT_TRUE(has(error, "Logged: train_loss, v, val_loss")) << error;
  EXPECT_TRUE(has(error, "Did you mean \"val_loss\"?")) << error;

  const CapturedConsole console;
  Trainer trainer(quiet(2, {}));
  trainer.fit(watching(module, "val_los", false), tiny_loader(8), tiny_loader(8));
  EXPECT_DOUBLE_EQ(learning_rate(trainer), 1.0);
  EXPECT_TRUE(console.has("\"val_los\" was never logged"));
  EXPECT_TRUE(console.has("The learning rate is unchanged."));
}

TEST(Schedulers, TheFirstBatchWarnsOfAMonitorThatNothingHasLogged) {
  TinyModule module;
  const CapturedConsole console;
  const std::string error =
      error_of([&] { Trainer(quiet(1, {})).fit(watching(module, "val_los", true), tiny_loader(8), tiny_loader(8)); });
  EXPECT_TRUE(has(error, "\"val_los\" was never logged by epoch 0")) << error;
  EXPECT_TRUE(
      console.has("ReduceLROnPlateau: metric \"val_los\" was not logged by the sanity check or the first "
                  "training batch. Logged: train_loss, v, val_loss. Did you mean \"val_loss\"?"))
      << console.text();
}

/// The learning rate after a fit whose validations, one after the other, log these values as "v".
double rate_after(TrainerOptions options, std::vector<double> values, ReduceLROnPlateauOptions plateau,
                  LRSchedulerOptions when) {
  struct Scripted : TinyModule {
    void validation_step(const Batch&, int64_t) override { log("v", values.at(std::min(done, values.size() - 1))); }
    void on_validation_epoch_end() override { ++done; }
    std::vector<double> values;
    size_t done = 0;
  } module;
  module.values = std::move(values);
  module.make_optimizers = [&](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), ReduceLROnPlateau(plateau), when);
  };
  options.num_sanity_val_steps = 0;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(8));  // 6 batches
  return learning_rate(trainer);
}

TEST(Schedulers, PlateauMovesWhereItsMetricHasANewValue) {
  const ReduceLROnPlateauOptions at_once{.factor = 0.5, .patience = 0};
  TrainerOptions rarely = quiet(15, {});
  rarely.check_val_every_n_epoch = 5;
  EXPECT_DOUBLE_EQ(rate_after(rarely, {3, 2, 1}, at_once, {.monitor = "v"}), 1.0);  // every validation improves
  EXPECT_DOUBLE_EQ(rate_after(rarely, {1, 2, 3}, at_once, {.monitor = "v"}), 0.25);
  EXPECT_DOUBLE_EQ(rate_after(rarely, {1, 2, 3}, at_once, {.frequency = 5, .monitor = "v"}), 0.25);
  const LRSchedulerOptions by_steps{.interval = Interval::step, .monitor = "v"};
  EXPECT_DOUBLE_EQ(rate_after(quiet(4, {}), {4, 3, 2, 1}, at_once, by_steps), 1.0);
  EXPECT_DOUBLE_EQ(rate_after(quiet(4, {}), {1, 2, 3, 4}, at_once, by_steps), 0.125);
  TrainerOptions in_windows = quiet(2, {});  // validations after batches 2, 4 and 6; steps after batches 4 and 6
  in_windows.val_check_interval = int64_t{2};
  in_windows.accumulate_grad_batches = 4;
  EXPECT_DOUBLE_EQ(rate_after(in_windows, {9, 8, 7, 6, 5, 4}, at_once, by_steps), 1.0);
}

TEST(Schedulers, PlateauCountsATrainingMetricWhereItIsLogged) {
  struct Sparse : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      if (batch_idx % 3 == 0) log("rare", 9.0 - static_cast<double>(batch_idx));
      return TinyModule::training_step(batch, batch_idx);
    }
  } module;
  module.make_optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), ReduceLROnPlateau({.factor = 0.5, .patience = 0}),
                           {.interval = Interval::step, .monitor = "rare"});
  };
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(40));  // 9, 6, 3 and 0 after batches 0, 3, 6 and 9
  EXPECT_DOUBLE_EQ(learning_rate(trainer), 1.0);
}

TEST(Schedulers, PlateauRemembersWhichValueItHasUsed) {
  const TemporaryFolder folder;
  const std::string path = folder / "end.ckpt";
  TrainerOptions rarely = quiet(3, {});
  rarely.check_val_every_n_epoch = 2;
  TinyModule first;
  Trainer before(rarely);
  before.fit(watching(first, "v", true), tiny_loader(8), tiny_loader(8));
  before.save_checkpoint(path);
  rarely.max_epochs = 4;  // the second validation, after epoch 3, is worse than the first
  TinyModule second;
  Trainer after(rarely);
  after.fit(watching(second, "v", true), tiny_loader(8), tiny_loader(8), path);
  EXPECT_DOUBLE_EQ(moves(after), 1);
}

TEST(Schedulers, PlateauNeedsAMonitor) {
  TinyModule module;
  const std::string error =
      error_of([&] { Trainer(quiet(1, {})).fit(watching(module, "", true), tiny_loader(8), tiny_loader(8)); });
  EXPECT_TRUE(has(error, "ReduceLROnPlateau needs a metric to watch. Set .monitor")) << error;
}

// ---- a length that is taken from the run ----------------------------------------------------------------------------

/// The learning rates of the training steps of a fit.
template <class Scheduler>
std::vector<double> rates_of(TrainerOptions options, Scheduler make, LRSchedulerOptions when, int64_t samples) {
  TinyModule module;
  module.make_optimizers = [&](TinyModule& m) {
    return OptimizerConfig().add(SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9})).schedule_shared(make(), when);
  };
  Trainer trainer(std::move(options));
  std::vector<double> rates;
  module.on_training_step = [&](int64_t) { rates.push_back(learning_rate(trainer)); };
  trainer.fit(module, tiny_loader(samples, 4));
  return rates;
}

std::shared_ptr<LRScheduler> one_cycle(OneCycleLROptions options = {.max_lr = 0.5}) {
  return std::make_shared<OneCycleLR>(std::move(options));
}

TEST(OneCycleInARun, TakesItsLengthFromTheRunAndGivesTheNumbersOfPyTorch) {
  std::ifstream file(test::source_dir() + "/tests/data/reference/schedulers.json");
  const auto reference = nlohmann::json::parse(file);
  std::vector<double> expected;
  for (const auto& one : reference.at("cases")) {
    if (one.at("init_args") != nlohmann::json{{"max_lr", 0.5}, {"total_steps", 41}}) continue;
    for (const auto& lr : one.at("lr")) expected.push_back(lr[0].get<double>());
  }
  ASSERT_EQ(expected.size(), 41U);
  TrainerOptions by_steps = quiet(-1, {});
  by_steps.max_steps = 41;
  // 9 steps an epoch: the fit ends in the middle of the fifth.
  const auto rates = rates_of(
      by_steps, [] { return one_cycle(); }, {.interval = Interval::step}, 36);
  ASSERT_EQ(rates.size(), expected.size());
  for (size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-12 * expected[i]) << i;
}

TEST(OneCycleInARun, CountsWindowsEpochsAndFrequency) {
  struct Case {
    int64_t epochs, accumulate;
    LRSchedulerOptions when;
    int64_t expected;
  };
  // 10 batches an epoch.
  const std::vector<Case> cases = {{3, 1, {.interval = Interval::step}, 30},
                                   {3, 4, {.interval = Interval::step}, 9},
                                   {3, 1, {.interval = Interval::step, .frequency = 4}, 6},
                                   {6, 1, {}, 6},
                                   {7, 1, {.frequency = 2}, 3}};
  for (const auto& one : cases) {
    TrainerOptions options = quiet(one.epochs, {});
    options.accumulate_grad_batches = one.accumulate;
    const auto filled = rates_of(
        options, [] { return one_cycle(); }, one.when, 40);
    const auto given = rates_of(
        options, [&] { return one_cycle({.max_lr = 0.5, .total_steps = one.expected}); }, one.when, 40);
    EXPECT_EQ(filled, given) << one.expected;
  }
}

std::shared_ptr<LRScheduler> warm_cosine(std::optional<int64_t> total_steps = {}) {
  return std::make_shared<CosineWithWarmup>(CosineWithWarmupOptions{.warmup = int64_t{2}, .total_steps = total_steps});
}

TEST(ScheduleOfARun, EndsWithTheRunWhereTheAccumulationChangesFromEpochToEpoch) {
  struct Case {
    std::map<int64_t, int64_t> scheduling;
    LRSchedulerOptions when;
    int64_t expected;
  };
  // 4 epochs of 10 batches.
  const std::vector<Case> cases = {{{{0, 4}}, {.interval = Interval::step}, 4 * 3},
                                   {{{0, 1}, {2, 4}}, {.interval = Interval::step}, 10 + 10 + 3 + 3},
                                   {{{1, 3}}, {.interval = Interval::step, .frequency = 2}, 5 + 2 + 2 + 2},
                                   {{{0, 4}}, {.interval = Interval::epoch}, 4},
                                   {{{0, 4}}, {.interval = Interval::epoch, .frequency = 2}, 2}};
  for (const auto& one : cases) {
    const auto options = [&] { return quiet(4, {GradientAccumulationScheduler({.scheduling = one.scheduling})}); };
    const auto filled = rates_of(
        options(), [] { return one_cycle(); }, one.when, 40);
    const auto given = rates_of(
        options(), [&] { return one_cycle({.max_lr = 0.5, .total_steps = one.expected}); }, one.when, 40);
    EXPECT_EQ(filled, given) << one.expected;
    const auto cosine = rates_of(
        options(), [] { return warm_cosine(); }, one.when, 40);
    EXPECT_EQ(cosine, rates_of(
                          options(), [&] { return warm_cosine(one.expected); }, one.when, 40))
        << one.expected;
  }
  TrainerOptions by_steps = quiet(-1, {GradientAccumulationScheduler({.scheduling = {{0, 1}, {2, 4}}})});
  by_steps.max_steps = 22;
  const auto rates = rates_of(
      by_steps, [] { return warm_cosine(); }, {.interval = Interval::step}, 40);
  EXPECT_NEAR(rates.back(), 0.1 * (1 + std::cos(M_PI * 19 / 20)) / 2, 1e-12);  // the last step, 2 of 22 are the warm-up
}

TEST(ScheduleOfARun, OfACosineWithWarmupCountsStepsUnlessConfiguredOtherwise) {
  const auto rates = rates_of(
      quiet(2, {}), [] { return warm_cosine(); }, {}, 40);
  ASSERT_EQ(rates.size(), 20U);
  EXPECT_EQ(rates, rates_of(
                       quiet(2, {}), [] { return warm_cosine(20); }, {.interval = Interval::step}, 40));
  EXPECT_DOUBLE_EQ(rates[2], 0.1);  // the warm-up of 2 steps is over
  const auto epochs = rates_of(
      quiet(4, {}), [] { return warm_cosine(); }, {.interval = Interval::epoch}, 40);
  EXPECT_DOUBLE_EQ(epochs[9], epochs[0]);
  EXPECT_DOUBLE_EQ(epochs[20], 0.1);
}

TEST(ScheduleOfARun, IsKnownToConfigureOptimizers) {
  TinyModule module;
  int64_t steps = 0;
  module.make_optimizers = [&](TinyModule& m) {
    steps = m.trainer().estimated_stepping_batches();
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1}));
  };
  Trainer trainer(quiet(3, {GradientAccumulationScheduler({.scheduling = {{1, 4}}})}));
  trainer.fit(module, tiny_loader(40, 4));
  EXPECT_EQ(steps, 10 + 3 + 3);
  EXPECT_EQ(trainer.global_step(), steps);
}

// Also when the module and the loaders of the fit are gone.
TEST(ScheduleOfARun, IsKnownAfterTheFit) {
  TrainerOptions options = quiet(3, {});
  options.accumulate_grad_batches = 4;
  Trainer trainer(options);
  EXPECT_EQ(trainer.estimated_stepping_batches(), 0);  // no fit has started yet
  {
    TinyModule module;
    trainer.fit(module, tiny_loader(40, 4));
    EXPECT_EQ(trainer.estimated_stepping_batches(), 3 * 3);
    EXPECT_EQ(trainer.num_training_batches(), 10);
    (void)trainer.test(module, tiny_loader(8));
  }
  EXPECT_EQ(trainer.estimated_stepping_batches(), 3 * 3);

  struct Failing : TinyModule {
    void setup(Stage) override { throw Error("no data"); }
  };
  Trainer failed(options);
  {
    Failing module;
    EXPECT_TRUE(has(error_of([&] { failed.fit(module, tiny_loader(8)); }), "no data"));
  }
  const std::string error = error_of([&] { (void)failed.estimated_stepping_batches(); });
  EXPECT_TRUE(has(error, "the last fit failed before its training loader was known")) << error;
  EXPECT_TRUE(has(error, "Call it in a hook of a fit")) << error;
}

TEST(ScheduleOfARun, WarnsOfACallbackThatChangesItsLength) {
  const auto warned = [](int64_t batches) {
    const CapturedConsole console;
    (void)rates_of(
        quiet(2, {LambdaCallback(
                     {.on_train_epoch_start =
                          [=](Trainer& trainer, LightningModule&) { trainer.set_accumulate_grad_batches(batches); }})}),
        [] { return one_cycle(); }, {.interval = Interval::step}, 40);
    return console.has("set_accumulate_grad_batches(" + std::to_string(batches) + ")") &&
           console.has("AccumulationSchedule");
  };
  EXPECT_TRUE(warned(4));
  EXPECT_FALSE(warned(1));
}

TEST(ScheduleOfARun, HasNoSingleScaleWhereTheAccumulationChanges) {
  TinyModule module;
  TrainerOptions options = quiet(1, {GradientAccumulationScheduler({.scheduling = {{0, 2}}})});
  options.lr_scale = LrScale::linear;
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "TrainerOptions.lr_scale: linear has no single factor")) << error;
}

TEST(OneCycleInARun, TakesItsShareOfASequence) {
  const auto sequence = [](OneCycleLROptions options) {
    SequentialLROptions parts{.milestones = {5}};
    parts.schedulers.push_back({"ConstantLR", {}, {}});
    ConfigNode args = ConfigNode::map();
    args.set("max_lr", ConfigNode::scalar("0.5"));
    if (options.total_steps) args.set("total_steps", ConfigNode::scalar(std::to_string(*options.total_steps)));
    parts.schedulers.push_back({"OneCycleLR", args, {}});
    return std::make_shared<SequentialLR>(std::move(parts));
  };
  const LRSchedulerOptions when{.interval = Interval::step};
  const auto filled = rates_of(
      quiet(2, {}), [&] { return sequence({}); }, when, 40);
  EXPECT_EQ(filled, rates_of(
                        quiet(2, {}), [&] { return sequence({.total_steps = 15}); }, when, 40));
}

TEST(OneCycleInARun, ReportsWhereTheLengthIsNotKnown) {
  TrainerOptions endless = quiet(-1, {});
  endless.max_time = Seconds(60);
  const std::string error = error_of([&] {
    (void)rates_of(
        endless, [] { return one_cycle(); }, {.interval = Interval::step}, 8);
  });
  EXPECT_TRUE(has(error, "OneCycleLR.total_steps: it is unset")) << error;
  EXPECT_TRUE(has(error, "TrainerOptions.max_steps")) << error;

  struct Manual : TwoPlayers {
    at::Tensor training_step(const Batch&, int64_t) override { return {}; }
    OptimizerConfig configure_optimizers() override {
      return {SGD({g}, {.lr = 1.0, .momentum = 0.9}), OneCycleLR({.max_lr = 0.5})};
    }
  } module;
  const std::string manual = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(20, 4)); });
  EXPECT_TRUE(has(manual, "the length of the cycle is not known. Set total_steps")) << manual;
}

TEST(Schedulers, ManualOptimizationMovesThemItself) {
  struct Manual : TwoPlayers {
    at::Tensor training_step(const Batch&, int64_t batch_idx) override {
      if (batch_idx == 1) lr_scheduler(0).step();
      return {};
    }
    OptimizerConfig configure_optimizers() override {
      return {SGD({g}, {.lr = 1.0}), StepLR({.step_size = 1, .gamma = 0.5}), {.interval = Interval::step}};
    }
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(20, 4));
  EXPECT_DOUBLE_EQ(moves(trainer), 1);
  EXPECT_EQ(&module.lr_scheduler(), trainer.lr_schedulers()[0].scheduler.get());
  EXPECT_EQ(error_of([&] { (void)module.lr_scheduler(1); }),
            "lr_scheduler(1): configure_optimizers returned 1 scheduler.");
}

}  // namespace
}  // namespace levin::run_schedulers_test
