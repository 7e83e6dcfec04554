// What a resume restores, and what it takes from the options of the run that continues.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "levin/core/random.h"
#include "levin/optim/adam.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/two_players.h"

namespace levin::resumed_options_test {
namespace {

using namespace test;
using Make = std::function<OptimizerConfig(TinyModule&)>;

struct Resumed {
  double lr = 0;  // of the first step after the resume, group by group
  double momentum = 0;
  double weight_decay = 0;
  std::string output = "";
};

constexpr int64_t kSavedAfter = 3;  // epochs of 2 steps

const std::vector<double> kValues{1, 2, 2, 2};  // by epoch, so that a plateau has one reduction by epoch 2

/// Continues from a checkpoint.
Resumed resume_from(const std::string& path, const Make& now, int64_t epochs,
                    const std::function<void(TrainerOptions&)>& change = {}) {
  const CapturedConsole console;
  TinyModule module;
  module.table = kValues;
  module.make_optimizers = now;
  TrainerOptions options = quiet(epochs, {});
  if (change) change(options);
  Trainer trainer(options);
  Resumed seen;
  module.on_training_step = [&](int64_t) {
    if (seen.lr != 0) return;
    const Optimizer::Group& group = trainer.optimizers()[0].optimizer().param_groups()[0];
    seen = {group.lr, group.momentum, group.weight_decay, ""};
  };
  trainer.fit(module, Loaders{tiny_loader(8)}, Loaders{tiny_loader(4)}, path);
  seen.output = console.text();
  return seen;
}

/// Trains 3 epochs with `before`, and continues from their checkpoint with `now`.
Resumed resume(const Make& before, const Make& now, int64_t epochs = kSavedAfter + 1,
               const std::function<void(TrainerOptions&)>& change = {}) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  TinyModule module;
  module.table = kValues;
  module.make_optimizers = before;
  Trainer trainer(quiet(kSavedAfter, {}));
  trainer.fit(module, tiny_loader(8), tiny_loader(4));
  trainer.save_checkpoint(path);
  return resume_from(path, now, epochs, change);
}

using MakeSchedule = std::function<std::shared_ptr<LRScheduler>()>;

template <class Scheduler>
MakeSchedule a(typename Scheduler::Options options) {
  return [=] { return std::make_shared<Scheduler>(options); };
}

Make sgd(SGDOptions options, const MakeSchedule& schedule = {}, const LRSchedulerOptions& when = {}) {
  return [=](TinyModule& m) {
    OptimizerConfig config(SGD(m.parameters(), options));
    if (schedule) config.schedule_shared(schedule(), when);
    return config;
  };
}

TEST(ResumedOptions, OfTheOptimizerComeFromTheRunThatContinues) {
  const Make base = sgd(SGDOptions{.lr = 0.1, .momentum = 0.9});
  const Resumed lr = resume(base, sgd(SGDOptions{.lr = 0.001, .momentum = 0.9}));
  EXPECT_EQ(lr.lr, 0.001);
  EXPECT_TRUE(has(lr.output,
                  "saved.ckpt: SGD.lr was 0.1 and is 0.001 now. Training continues with the present options; "
                  "the learning rate is 0.001 instead of 0.1."))
      << lr.output;
  const Resumed momentum = resume(base, sgd(SGDOptions{.lr = 0.1, .momentum = 0.5}));
  EXPECT_EQ(momentum.momentum, 0.5);
  EXPECT_TRUE(has(momentum.output, "SGD.momentum was 0.9 and is 0.5 now")) << momentum.output;
  EXPECT_TRUE(has(momentum.output, "the learning rate is still 0.1")) << momentum.output;
  EXPECT_EQ(resume(sgd(SGDOptions{.lr = 0.1}), sgd(SGDOptions{.lr = 0.1, .momentum = 0.5})).momentum, 0.5);
  const Resumed decay = resume(base, sgd(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}));
  EXPECT_EQ(decay.weight_decay, 0.5);
  EXPECT_EQ(decay.momentum, 0.9);
  EXPECT_TRUE(has(decay.output, "SGD.weight_decay was 0.0 and is 0.5 now") ||
              has(decay.output, "SGD.weight_decay was 0 and is 0.5 now"))
      << decay.output;

  const auto adam = [](AdamOptions options) {
    return [=](TinyModule& m) { return OptimizerConfig(Adam(m.parameters(), options)); };
  };
  const Resumed betas = resume(adam({.lr = 0.1}), adam({.lr = 0.1, .betas = {0.5, 0.99}}));
  EXPECT_EQ(betas.momentum, 0.5);
  EXPECT_TRUE(has(betas.output, "Adam.betas[0] was 0.9 and is 0.5, Adam.betas[1] was 0.999 and is 0.99 now"))
      << betas.output;
  const auto torch_sgd = [](double rate) {
    return [=](TinyModule& m) {
      return OptimizerConfig(torch::optim::SGD(m.parameters(), torch::optim::SGDOptions(rate)));
    };
  };
  EXPECT_EQ(resume(torch_sgd(0.1), torch_sgd(0.01)).lr, 0.01);
}

TEST(ResumedOptions, OfOneGroupAreFound) {
  const auto groups = [](double rate) {
    return [=](TinyModule& m) {
      auto optimizer = std::make_shared<SGD>(SGDOptions{.lr = 0.1});
      optimizer->add_param_group({.params = {m.layer->weight}, .lr = rate});
      optimizer->add_param_group({.params = {m.layer->bias}});
      return OptimizerConfig(optimizer);
    };
  };
  const Resumed seen = resume(groups(0.2), groups(0.4));
  EXPECT_EQ(seen.lr, 0.4);
  EXPECT_TRUE(has(seen.output, "SGD.groups[0].lr was 0.2 and is 0.4 now")) << seen.output;
}

TEST(ResumedOptions, ThatAreTheSameSayNothing) {
  const Make base = sgd({.lr = 0.1, .momentum = 0.9}, a<StepLR>({.step_size = 1, .gamma = 0.3}));
  const Resumed seen = resume(base, base);
  EXPECT_FALSE(has(seen.output, "Continuing from")) << seen.output;
  EXPECT_NEAR(seen.lr, 0.1 * std::pow(0.3, 3), 1e-15);
}

// A rate that a hook has changed is part of the state, in the proportion in which it was changed.
TEST(ResumedOptions, KeepWhatAHookHasMadeOfTheRate) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  TinyModule first;
  first.make_optimizers = sgd({.lr = 0.8});
  Trainer before(quiet(1, {}));
  before.fit(first, tiny_loader(8));
  before.optimizers()[0].optimizer().param_groups()[0].lr /= 2;
  before.save_checkpoint(path);
  for (const auto& [rate, expected] : {std::pair(0.8, 0.4), std::pair(0.2, 0.1)}) {
    const CapturedConsole console;
    TinyModule second;
    second.make_optimizers = sgd({.lr = rate});
    Trainer after(quiet(2, {}));
    after.fit(second, Loaders{tiny_loader(8)}, Loaders{}, path);
    EXPECT_DOUBLE_EQ(after.optimizers()[0].optimizer().param_groups()[0].lr, expected);
  }
}

// The closed forms of the schedules after 3 epochs.
TEST(ResumedOptions, OfASchedulePutItWhereItWouldBeWithThem) {
  const SGDOptions low{.lr = 0.1};
  const SGDOptions high{.lr = 0.2};
  const auto decay = [](double gamma) { return a<StepLR>({.step_size = 1, .gamma = gamma}); };
  EXPECT_NEAR(resume(sgd(low, decay(0.5)), sgd(high, decay(0.5))).lr, 0.2 / 8, 1e-15);
  const Resumed gamma = resume(sgd(low, decay(0.5)), sgd(low, decay(0.1)));
  EXPECT_NEAR(gamma.lr, 0.1 / 1000, 1e-15);
  EXPECT_TRUE(has(gamma.output, "StepLR.gamma was 0.5 and is 0.1 now")) << gamma.output;
  const auto cosine = [](double eta_min) { return a<CosineAnnealingLR>({.T_max = 10, .eta_min = eta_min}); };
  const double way = (1 + std::cos(M_PI * 3 / 10)) / 2;
  EXPECT_NEAR(resume(sgd(low, cosine(0.01)), sgd(high, cosine(0.01))).lr, 0.01 + 0.19 * way, 1e-12);
  EXPECT_NEAR(resume(sgd(low, cosine(0.01)), sgd(low, cosine(0.05))).lr, 0.05 + 0.05 * way, 1e-12);
  const auto restarts = [](int64_t first) { return a<CosineAnnealingWarmRestarts>({.T_0 = first}); };
  EXPECT_NEAR(resume(sgd(low, restarts(4)), sgd(low, restarts(3))).lr, 0.1, 1e-12);  // restarted after 3
  const MakeSchedule root = [] {
    return std::make_shared<LambdaLR>([](int64_t step) { return 1 / std::sqrt(1.0 + static_cast<double>(step)); });
  };
  EXPECT_NEAR(resume(sgd(low, root), sgd(high, root)).lr, 0.2 / 2, 1e-15);
  const auto sequence = [](const char* rate) {
    SequentialLROptions parts{.milestones = {1}};
    ConfigNode constant = ConfigNode::map();
    constant.set("factor", ConfigNode::scalar("1.0"));
    parts.schedulers.push_back({"ConstantLR", constant, {}});
    ConfigNode args = ConfigNode::map();
    args.set("gamma", ConfigNode::scalar(rate));
    parts.schedulers.push_back({"ExponentialLR", args, {}});
    return a<SequentialLR>(parts);
  };
  EXPECT_NEAR(resume(sgd(low, sequence("0.5")), sgd(low, sequence("0.2"))).lr, 0.1 * 0.2 * 0.2, 1e-15);
  // One that follows a metric keeps what it has made of the rate.
  const LRSchedulerOptions watch{.monitor = "v"};
  const MakeSchedule plateau = a<ReduceLROnPlateau>({.factor = 0.5, .patience = 1});
  EXPECT_DOUBLE_EQ(resume(sgd(low, plateau, watch), sgd(low, plateau, watch)).lr, 0.05);
  EXPECT_DOUBLE_EQ(resume(sgd(low, plateau, watch), sgd(high, plateau, watch)).lr, 0.1);
}

TEST(ResumedOptions, ALongerRunMovesAScheduleOfItsLengthAndReportsIt) {
  const auto check = [](const MakeSchedule& schedule, const std::string& name) {
    const Make make = sgd({.lr = 0.1, .momentum = 0.9}, schedule, {.interval = Interval::step});
    double uninterrupted = 0;  // at step 6 of a run of 8 epochs
    TinyModule module;
    module.make_optimizers = make;
    Trainer trainer(quiet(8, {}));
    module.on_training_step = [&](int64_t) {
      if (trainer.global_step() == 2 * kSavedAfter) {
        uninterrupted = trainer.optimizers()[0].optimizer().param_groups()[0].lr;
      }
    };
    trainer.fit(module, tiny_loader(8));
    const Resumed seen = resume(make, make, 8);
    EXPECT_DOUBLE_EQ(seen.lr, uninterrupted);
    EXPECT_TRUE(has(seen.output, name + ".total_steps was 6 and is 16 now")) << seen.output;
    EXPECT_TRUE(has(seen.output, "the learning rate is ") && has(seen.output, " instead of ")) << seen.output;
  };
  check(a<OneCycleLR>({.max_lr = 0.5}), "OneCycleLR");
  check(a<CosineWithWarmup>({}), "CosineWithWarmup");
}

// A schedule that the present run does not have has made nothing of its rate; plateaus and cycled momentum included.
TEST(ResumedOptions, WithoutAScheduleTheRateIsTheConfiguredOne) {
  const SGDOptions options{.lr = 0.1, .momentum = 0.5};
  const Resumed decayed = resume(sgd(options, a<StepLR>({.step_size = 1})), sgd(options));
  EXPECT_EQ(decayed.lr, 0.1);
  EXPECT_TRUE(has(decayed.output,
                  "saved.ckpt: SGD.lr_scheduler was StepLR and is not set now. Training continues with the present "
                  "options; the learning rate is 0.1 instead of 0.0001."))
      << decayed.output;
  const Resumed cycled = resume(sgd(options, a<OneCycleLR>({.max_lr = 0.5, .total_steps = 9})), sgd(options));
  EXPECT_EQ(cycled.lr, 0.1);
  EXPECT_EQ(cycled.momentum, 0.5);
  const auto plateau = a<ReduceLROnPlateau>({.factor = 0.5, .patience = 1});
  EXPECT_EQ(resume(sgd(options, plateau, {.monitor = "v"}), sgd({.lr = 0.2, .momentum = 0.5})).lr, 0.2);
}

// Each optimizer's schedules are found by their optimizer and name, not by their number in the checkpoint.
TEST(ResumedOptions, WithoutAScheduleOthersKeepTheirState) {
  struct Both : TwoPlayers {
    OptimizerConfig configure_optimizers() override {
      OptimizerConfig both(SGD({g}, {.lr = 1.0}));
      if (schedules_first) both.schedule(StepLR({.step_size = 1, .gamma = 0.5}));
      both.add(SGD({d, frozen}, {.lr = 1.0}));
      both.schedule(StepLR({.step_size = 1, .gamma = 0.25}));
      return both;
    }
    void on_train_epoch_end() override {
      for (auto& each : lr_schedulers()) each.scheduler->step();
    }
    bool schedules_first = true;
  };
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  Both first;
  Trainer before(quiet(1, {}));
  before.fit(first, tiny_loader(8));
  before.save_checkpoint(path);
  const CapturedConsole console;
  Both second;
  second.schedules_first = false;
  Trainer after(quiet(2, {}));
  after.fit(second, Loaders{tiny_loader(8)}, Loaders{}, path);
  EXPECT_EQ(after.optimizers()[0].optimizer().param_groups()[0].lr, 1.0);
  EXPECT_EQ(after.optimizers()[1].optimizer().param_groups()[0].lr, 0.25 * 0.25);
  EXPECT_TRUE(console.has("SGD.lr_scheduler was StepLR and is not set now")) << console.text();
}

// Where it is due otherwise, a schedule is where it would be if it had been due like that from the start: 3 epochs of 2
// steps are done.
TEST(ResumedOptions, OfWhenAScheduleIsDueMoveItToo) {
  const auto decaying = [](LRSchedulerOptions when, int64_t step_size = 1, double gamma = 0.5) {
    return sgd({.lr = 0.1}, a<StepLR>({.step_size = step_size, .gamma = gamma}), when);
  };
  const Resumed rarer = resume(decaying({}), decaying({.frequency = 2}));
  EXPECT_NEAR(rarer.lr, 0.1 * 0.5, 1e-15);
  EXPECT_TRUE(has(rarer.output,
                  "StepLR.frequency was 1 and is 2 now. Training continues with the present options; the "
                  "learning rate is 0.05 instead of 0.0125."))
      << rarer.output;
  const Resumed finer = resume(decaying({}), decaying({.interval = Interval::step}, 2, 0.1));
  EXPECT_NEAR(finer.lr, 0.1 * 0.001, 1e-15);
  EXPECT_TRUE(has(finer.output,
                  "StepLR.step_size was 1 and is 2, StepLR.gamma was 0.5 and is 0.1, StepLR.interval was "
                  "epoch and is step now"))
      << finer.output;
  EXPECT_NEAR(resume(decaying({.interval = Interval::step}), decaying({})).lr, 0.1 / 8, 1e-15);
  EXPECT_NEAR(resume(decaying({}), decaying({.interval = Interval::step, .frequency = 2})).lr, 0.1 / 8, 1e-15);
  EXPECT_NEAR(resume(decaying({}), decaying({.interval = Interval::step, .frequency = 3})).lr, 0.1, 1e-15);
  // An interval that is given, and the same as the scheduler's own.
  const Resumed same = resume(decaying({}), decaying({.interval = Interval::epoch}));
  EXPECT_FALSE(has(same.output, "Continuing from")) << same.output;
  EXPECT_NEAR(same.lr, 0.1 / 8, 1e-15);
}

TEST(ResumedOptions, ALowestRateHoldsForAPlateauToo) {
  const LRSchedulerOptions watch{.monitor = "v"};
  const auto plateau = [&](double lr, double lowest) {
    return sgd({.lr = lr}, a<ReduceLROnPlateau>({.factor = 0.5, .patience = 1, .min_lr = lowest}), watch);
  };
  const Resumed raised = resume(plateau(0.1, 0.0), plateau(0.1, 0.08));
  EXPECT_DOUBLE_EQ(raised.lr, 0.08);
  EXPECT_TRUE(has(raised.output,
                  "is 0.08 now. Training continues with the present options; the learning rate is 0.08 "
                  "instead of 0.05."))
      << raised.output;
  EXPECT_DOUBLE_EQ(resume(plateau(0.1, 0.0), plateau(0.1, 0.02)).lr, 0.05);
  EXPECT_DOUBLE_EQ(resume(plateau(0.1, 0.02), plateau(0.03, 0.02)).lr, 0.02);
  EXPECT_DOUBLE_EQ(resume(plateau(0.1, 0.0), plateau(0.02, 0.04)).lr, 0.02);  // it would have begun below
}

// ---- the schedule of a callback -------------------------------------------------------------------------------------

/// Averages from the second epoch on, so that its schedule has moved twice in the 3 epochs before the resume.
Resumed resume_swa(const Make& before, const StochasticWeightAveragingOptions& swa_before, const Make& now,
                   const std::optional<StochasticWeightAveragingOptions>& swa_now) {
  const TemporaryFolder folder;
  const std::string path = folder / "saved.ckpt";
  TinyModule module;
  module.make_optimizers = before;
  const auto save = [&](Trainer& trainer, LightningModule&) {
    if (trainer.current_epoch() + 1 == kSavedAfter) trainer.save_checkpoint(path);
  };
  Trainer(quiet(kSavedAfter + 1, {StochasticWeightAveraging(swa_before), LambdaCallback({.on_train_epoch_end = save})}))
      .fit(module, tiny_loader(8));
  return resume_from(path, now, kSavedAfter + 1, [&](TrainerOptions& options) {
    if (swa_now) options.callbacks = {StochasticWeightAveraging(*swa_now)};
  });
}

TEST(ResumedOptions, OfACallbacksScheduleHoldAtOnce) {
  const Make base = sgd({.lr = 0.1});
  const Make high = sgd({.lr = 0.2});
  const auto swa = [](double rate, int64_t epochs) {
    return StochasticWeightAveragingOptions{.swa_lrs = rate,
                                            .swa_epoch_start = int64_t{2},
                                            .annealing_epochs = epochs,
                                            .annealing_strategy = AnnealStrategy::linear};
  };
  for (const int64_t epochs : {0, 1, 2}) {  // it has arrived
    const Resumed lower = resume_swa(base, swa(0.05, epochs), base, swa(0.01, epochs));
    EXPECT_DOUBLE_EQ(lower.lr, 0.01);
    EXPECT_TRUE(has(lower.output,
                    "SWALR.swa_lr was 0.05 and is 0.01 now. Training continues with the present options; "
                    "the learning rate is 0.01 instead of 0.05."))
        << lower.output;
    const Resumed other = resume_swa(base, swa(0.05, epochs), high, swa(0.05, epochs));
    EXPECT_DOUBLE_EQ(other.lr, 0.05);
    EXPECT_TRUE(has(other.output, "SGD.lr was 0.1 and is 0.2 now")) << other.output;
    EXPECT_TRUE(has(other.output, "the learning rate is still 0.05")) << other.output;
  }
  // On the way, after 2 of 4 moves from the rate before.
  EXPECT_NEAR(resume_swa(base, swa(0.05, 4), base, swa(0.05, 4)).lr, (0.1 + 0.05) / 2, 1e-15);
  EXPECT_NEAR(resume_swa(base, swa(0.05, 4), base, swa(0.01, 4)).lr, (0.1 + 0.01) / 2, 1e-15);
  EXPECT_NEAR(resume_swa(base, swa(0.05, 4), high, swa(0.05, 4)).lr, (0.2 + 0.05) / 2, 1e-15);
  EXPECT_NEAR(resume_swa(base, swa(0.05, 4), base, swa(0.05, 8)).lr, 0.1 + 0.25 * (0.05 - 0.1), 1e-15);
  // A schedule had moved the rate before: once, to 0.05.
  const MakeSchedule halving = a<StepLR>({.step_size = 1, .gamma = 0.5});
  const Make moved = sgd({.lr = 0.1}, halving);
  EXPECT_NEAR(resume_swa(moved, swa(0.05, 4), moved, swa(0.01, 4)).lr, (0.05 + 0.01) / 2, 1e-15);
  EXPECT_NEAR(resume_swa(moved, swa(0.05, 4), sgd({.lr = 0.2}, halving), swa(0.05, 4)).lr, (0.1 + 0.05) / 2, 1e-15);
}

TEST(ResumedOptions, WithoutTheCallbackItsScheduleIsGone) {
  const Make base = sgd({.lr = 0.1});
  const StochasticWeightAveragingOptions swa{.swa_lrs = 0.05, .swa_epoch_start = int64_t{2}, .annealing_epochs = 0};
  const Resumed seen = resume_swa(base, swa, base, std::nullopt);
  EXPECT_EQ(seen.lr, 0.1);
  EXPECT_TRUE(has(seen.output, "SGD.lr_scheduler was SWALR and is not set now")) << seen.output;
}

TEST(ResumedOptions, OfTheTrainerAreReportedToo) {
  const Make base = sgd(SGDOptions{.lr = 0.1});
  const Resumed seen = resume(base, base, kSavedAfter + 1, [](TrainerOptions& options) {
    options.accumulate_grad_batches = 2;
    options.callbacks = {LambdaCallback({.on_train_end = [](Trainer& trainer, LightningModule&) {
      EXPECT_EQ(trainer.global_step(), 2 * kSavedAfter + 1);  // the last epoch is one step of two batches
    }})};
  });
  EXPECT_TRUE(has(seen.output, "TrainerOptions.accumulate_grad_batches was 1 and is 2 now")) << seen.output;

  const uint64_t seed = default_seed();
  set_default_seed(seed + 1);
  const Resumed first = resume(base, base);
  EXPECT_FALSE(has(first.output, "the seed of this start"));
  const Resumed other = resume(
      [&](TinyModule& m) {
        set_default_seed(41);
        return base(m);
      },
      [&](TinyModule& m) {
        set_default_seed(42);
        return base(m);
      });
  EXPECT_TRUE(has(other.output, "the seed of this start, 42, is not used")) << other.output;
  EXPECT_EQ(default_seed(), 41U);
  set_default_seed(seed);
}

// After a rollback the schedule continues from its present position, whose rate is not the checkpoint's.
TEST(ResumedOptions, ARollbackLeavesTheRateToTheSchedule) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  struct Poisoned : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
      return batch_idx == 3 ? loss * NAN : loss;
    }
  } module;
  module.make_optimizers = sgd({.lr = 0.1}, a<StepLR>({.step_size = 1, .gamma = 0.5}), {.interval = Interval::step});
  TrainerOptions options =
      quiet(1, {ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 2})});
  options.nonfinite_loss = NonFiniteLoss::rollback;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));  // 6 batches; the rate has moved once after the checkpoint of step 2
  EXPECT_NEAR(trainer.optimizers()[0].optimizer().param_groups()[0].lr,
              0.1 * std::pow(0.5, static_cast<double>(trainer.lr_schedulers()[0].scheduler->last_epoch)), 1e-15);
}

// Weights, and so their gradients, in the order of channels_last: 2 of 4 batches of a window are saved.
TEST(ResumedOptions, GradientsOfAWindowKeepTheirMemoryFormat) {
  struct Images : TinyModule {
    Images() {
      unregister_module("layer");
      torch::manual_seed(3);
      conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
    }
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      if (on_training_step) on_training_step(batch_idx);
      return conv->forward(batch[0].repeat({1, 48}).reshape({-1, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast))
          .square()
          .mean();
    }
    OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
    torch::nn::Conv2d conv{nullptr};
  };
  const TemporaryFolder folder;
  const std::string path = folder / "window.ckpt";
  const auto run = [&](Images& module, const std::string& from, bool saves) {
    TrainerOptions options = quiet(1, {});
    options.accumulate_grad_batches = 4;
    options.gradient_clip_val = 0.01;
    options.channels_last = true;
    if (saves) {
      options.callbacks = {LambdaCallback(
          {.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&, const Batch&, int64_t index) {
            if (index == 1) t.save_checkpoint(path);
          }})};
    }
    Trainer(options).fit(module, Loaders{tiny_loader(16)}, Loaders{}, from);
  };
  Images whole;
  run(whole, "", true);
  Images rest;
  bool first = true;
  rest.on_training_step = [&](int64_t) {
    if (!std::exchange(first, false)) return;
    const at::Tensor& weight = rest.conv->weight;
    ASSERT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(weight.grad().strides(), weight.strides());
  };
  run(rest, path, false);
  EXPECT_FALSE(first);
  EXPECT_TRUE(torch::equal(whole.conv->weight, rest.conv->weight));
}

}  // namespace
}  // namespace levin::resumed_options_test
