// What one training batch does to the weights: windows, clipping, manual optimization, closures, schedulers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/adamw.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::optimization_test {
namespace {

using namespace test;

/// A loader that cannot tell its length.
class UnsizedLoader final : public Loader {
 public:
  explicit UnsizedLoader(std::shared_ptr<Loader> inner) : inner_(std::move(inner)) {}
  void start(int64_t epoch, int64_t first_batch) override { inner_->start(epoch, first_batch); }
  bool next(Batch& batch) override { return inner_->next(batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }

 private:
  std::shared_ptr<Loader> inner_;
};

double learning_rate(Trainer& trainer) {
  return trainer.optimizers().at(0).optimizer().groups()[0].lr;
}

// ---- accumulation ---------------------------------------------------------------------------------------------------

constexpr int64_t kEpochs = 4;

enum class Kind { sgd, adamw };

/// Weights after kEpochs of batches of 8, in float64, by LibTorch's own optimizers: the truth.
at::Tensor weights_by_torch(Kind kind, int64_t samples) {
  TinyModule module;
  module.to(at::kDouble);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (kind == Kind::sgd) {
    optimizer = std::make_unique<torch::optim::SGD>(module.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(module.parameters(), torch::optim::AdamWOptions(0.05));
  }
  const auto loader = tiny_loader(samples, 8);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader->start(epoch, 0);
    for (Batch batch; loader->next(batch);) {
      optimizer->zero_grad();
      torch::mse_loss(module.forward(batch[0].to(at::kDouble)), batch[1].to(at::kDouble)).backward();
      optimizer->step();
    }
  }
  return torch::cat({module.layer->weight.flatten(), module.layer->bias}).detach();
}

struct Outcome {
  at::Tensor weights;
  int64_t steps;
};

/// The same by Levin with `n` micro-batches of 8 / n samples per step.
Outcome weights_by_levin(Kind kind, int64_t samples, int64_t n, bool sized) {
  TinyModule module;
  module.make_optimizers = [kind](TinyModule& m) -> OptimizerConfig {
    if (kind == Kind::sgd) return SGD(m.parameters(), {.lr = 0.1, .momentum = 0.9});
    return AdamW(m.parameters(), {.lr = 0.05});
  };
  TrainerOptions options = quiet(kEpochs, {});
  options.precision = "64-true";
  options.accumulate_grad_batches = n;
  std::shared_ptr<Loader> loader = tiny_loader(samples, 8 / n);
  if (!sized) loader = std::make_shared<UnsizedLoader>(loader);
  Trainer trainer(options);
  trainer.fit(module, loader);
  return {torch::cat({module.layer->weight.flatten(), module.layer->bias}).detach(), trainer.global_step()};
}

class Accumulation : public ::testing::TestWithParam<std::tuple<Kind, bool>> {};

TEST_P(Accumulation, MicroBatchesEqualOneBigBatch) {
  const auto [kind, sized] = GetParam();
  // 32 samples: whole windows; 20: a window of 4 samples at the end of each epoch; 4: an epoch shorter than a window.
  for (const int64_t samples : {32, 20, 4}) {
    const at::Tensor truth = weights_by_torch(kind, samples);
    for (const int64_t n : {1, 2, 4, 8}) {
      const Outcome outcome = weights_by_levin(kind, samples, n, sized);
      EXPECT_LT((outcome.weights - truth).abs().max().item().toDouble(), 1e-12) << samples << " samples, N = " << n;
      EXPECT_EQ(outcome.steps, kEpochs * ((samples + 7) / 8)) << samples << " samples, N = " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Accumulation,
                         ::testing::Combine(::testing::Values(Kind::sgd, Kind::adamw), ::testing::Bool()),
                         [](const auto& given) {
                           return std::string(std::get<0>(given.param) == Kind::sgd ? "Sgd" : "AdamW") +
                                  (std::get<1>(given.param) ? "Sized" : "Unsized");
                         });

TEST(AccumulationWindow, HooksSeeTheLossDividedByTheWindow) {
  std::vector<double> seen, own;
  TinyModule module;
  LambdaCallback watch(
      {.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) {
        EXPECT_FALSE(loss.requires_grad());
        seen.push_back(loss.item().toDouble());
        own.push_back(trainer.callback_metrics().at("train_loss"));
      }});
  TrainerOptions options = quiet(1, watch);
  options.accumulate_grad_batches = 4;
  Trainer(options).fit(module, tiny_loader(24, 4));  // windows of 4 and 2 batches
  ASSERT_EQ(seen.size(), 6U);
  for (size_t i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(seen[i], own[i] / (i < 4 ? 4 : 2)) << i;
}

// ---- clipping -------------------------------------------------------------------------------------------------------

/// loss = w . (3, 4): the gradient is (3, 4), its norm 5.
class SlopeModule : public LightningModule {
 public:
  at::Tensor training_step(const Batch&, int64_t) override { return (w * torch::tensor({3.0F, 4.0F})).sum(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 1.0}); }
  at::Tensor w{register_parameter("w", torch::zeros(2))};
};

at::Tensor slope_after_one_step(std::optional<double> clip_val, ClipAlgorithm algorithm, int64_t accumulate = 1) {
  SlopeModule module;
  TrainerOptions options = quiet(1, {});
  options.gradient_clip_val = clip_val;
  options.gradient_clip_algorithm = algorithm;
  options.accumulate_grad_batches = accumulate;
  Trainer(options).fit(module, tiny_loader(4 * accumulate, 4));
  return -module.w.detach();
}

TEST(GradientClipping, ByNormScalesAllGradients) {
  const at::Tensor slope = torch::tensor({3.0F, 4.0F});
  EXPECT_TRUE(slope_after_one_step(1.0, ClipAlgorithm::norm).allclose(slope / 5, 1e-6, 1e-6));
  EXPECT_TRUE(slope_after_one_step(2.5, ClipAlgorithm::norm).allclose(slope / 2, 1e-6, 1e-6));
  EXPECT_TRUE(slope_after_one_step(5.5, ClipAlgorithm::norm).equal(slope));
}

TEST(GradientClipping, ByValueClampsEachNumber) {
  EXPECT_TRUE(slope_after_one_step(3.5, ClipAlgorithm::value).equal(torch::tensor({3.0F, 3.5F})));
  EXPECT_TRUE(slope_after_one_step(0.5, ClipAlgorithm::value).equal(torch::tensor({0.5F, 0.5F})));
}

TEST(GradientClipping, ZeroAndUnsetAreOff) {
  const at::Tensor slope = torch::tensor({3.0F, 4.0F});
  EXPECT_TRUE(slope_after_one_step(std::nullopt, ClipAlgorithm::norm).equal(slope));
  EXPECT_TRUE(slope_after_one_step(0.0, ClipAlgorithm::norm).equal(slope));
  EXPECT_TRUE(slope_after_one_step(0.0, ClipAlgorithm::value).equal(slope));
}

TEST(GradientClipping, SeesTheWholeWindowsGradient) {
  EXPECT_TRUE(slope_after_one_step(4.5, ClipAlgorithm::value, 2).equal(torch::tensor({3.0F, 4.0F})));
  EXPECT_TRUE(slope_after_one_step(3.5, ClipAlgorithm::value, 2).equal(torch::tensor({3.0F, 3.5F})));
}

TEST(GradientClipping, MayBeReplacedByTheModule) {
  struct OwnClipping : SlopeModule {
    void configure_gradient_clipping(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm) override {
      EXPECT_EQ(clip_val, 7.0);
      EXPECT_EQ(algorithm, ClipAlgorithm::value);
      clip_gradients(optimizer, 1.0, ClipAlgorithm::value);
    }
  } module;
  TrainerOptions options = quiet(1, {});
  options.gradient_clip_val = 7.0;
  options.gradient_clip_algorithm = ClipAlgorithm::value;
  Trainer(options).fit(module, tiny_loader(4, 4));
  EXPECT_TRUE(module.w.equal(torch::tensor({-1.0F, -1.0F})));
}

// ---- manual optimization --------------------------------------------------------------------------------------------

/// Two optimizers that take turns, as the two halves of a GAN do.
class TwoPlayers : public LightningModule {
 public:
  TwoPlayers() {
    set_automatic_optimization(false);
    frozen.set_requires_grad(false);
  }
  at::Tensor training_step(const Batch&, int64_t) override {
    LightningOptimizer &opt_g = optimizer(0), &opt_d = optimizer(1);
    toggle_optimizer(opt_g.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    opt_g.zero_grad();
    manual_backward((g * 2).sum() + (d * 100).sum());
    EXPECT_FALSE(d.grad().defined() && d.grad().sum().item().toDouble() >= 100);  // the other player's are left alone
    opt_g.step();
    untoggle_optimizer(opt_g.optimizer());

    toggle_optimizer(opt_d.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    opt_d.zero_grad();
    manual_backward((d * 3).sum());
    opt_d.step();
    untoggle_optimizer(opt_d.optimizer());
    flags.push_back({g.requires_grad(), d.requires_grad(), frozen.requires_grad()});
    return {};
  }
  OptimizerConfig configure_optimizers() override {
    OptimizerConfig both(SGD({g}, {.lr = 1.0}));
    both.add(SGD({d, frozen}, {.lr = 1.0}));
    return both;
  }
  at::Tensor g{register_parameter("g", torch::zeros(1))};
  at::Tensor d{register_parameter("d", torch::zeros(1))};
  at::Tensor frozen{register_parameter("frozen", torch::zeros(1))};
  std::vector<std::array<bool, 3>> flags = {};
};

TEST(ManualOptimization, TwoOptimizersStepAndAreCounted) {
  int before_backward = 0, after_backward = 0, before_zero_grad = 0;
  std::vector<const Optimizer*> stepped;
  LambdaCallback count({
      .on_before_zero_grad = [&](Trainer&, LightningModule&, Optimizer&) { ++before_zero_grad; },
      .on_before_backward = [&](Trainer&, LightningModule&, const at::Tensor&) { ++before_backward; },
      .on_after_backward = [&](Trainer&, LightningModule&) { ++after_backward; },
      .on_before_optimizer_step = [&](Trainer&, LightningModule&, Optimizer& o) { stepped.push_back(&o); },
  });
  TwoPlayers module;
  Trainer trainer(quiet(1, count));
  trainer.fit(module, tiny_loader(20, 4));
  EXPECT_EQ(trainer.global_step(), 10);  // every step of every optimizer
  EXPECT_EQ(trainer.logging_step(), 5);  // the loggers' axis does not double
  EXPECT_EQ(before_backward, 10);
  EXPECT_EQ(after_backward, 10);
  EXPECT_EQ(before_zero_grad, 0);
  ASSERT_EQ(stepped.size(), 10U);
  EXPECT_EQ(stepped[0], &trainer.optimizers()[0].optimizer());
  EXPECT_EQ(stepped[1], &trainer.optimizers()[1].optimizer());
  EXPECT_EQ(module.g.item().toDouble(), -10.0);  // 5 steps of slope 2
  EXPECT_EQ(module.d.item().toDouble(), -15.0);
}

TEST(ManualOptimization, ToggleKeepsTheOtherOptimizersParametersOutOfTheGraph) {
  TwoPlayers module;
  Trainer(quiet(1, {})).fit(module, tiny_loader(4, 4));
  ASSERT_EQ(module.flags.size(), 3U);
  EXPECT_EQ(module.flags[0], (std::array<bool, 3>{true, false, false}));
  EXPECT_EQ(module.flags[1], (std::array<bool, 3>{false, true, false}));
  EXPECT_EQ(module.flags[2], (std::array<bool, 3>{true, true, false}));
}

TEST(ManualOptimization, RefusesOptionsThatOnlyTheTrainerCouldApply) {
  TwoPlayers module;
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = 2;
  std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "TrainerOptions.accumulate_grad_batches: 2 has no meaning with manual optimization")) << error;
  options.accumulate_grad_batches = 1;
  options.gradient_clip_val = 0.5;
  error = error_of([&] { Trainer(options).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "TrainerOptions.gradient_clip_val: 0.5 has no meaning with manual optimization")) << error;
}

TEST(ManualOptimization, NamesAnOptimizerThatIsNotThere) {
  struct Wrong : TwoPlayers {
    at::Tensor training_step(const Batch&, int64_t) override {
      optimizer(2).step();
      return {};
    }
  } module;
  const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "optimizer(2): configure_optimizers returned 2 optimizers")) << error;
}

TEST(ManualOptimization, TogglesOneOptimizerAtATime) {
  struct Wrong : TwoPlayers {
    at::Tensor training_step(const Batch&, int64_t) override {
      toggle_optimizer(optimizer(0).optimizer());
      toggle_optimizer(optimizer(1).optimizer());
      return {};
    }
  } module;
  const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "another optimizer is toggled")) << error;
}

TEST(ManualOptimization, StepWithAClosureCountsOnce) {
  struct ClosureModule : TinyModule {
    ClosureModule() { set_automatic_optimization(false); }
    at::Tensor training_step(const Batch& batch, int64_t) override {
      optimizer().step([&] {
        ++evaluations;
        optimizer().zero_grad();
        const at::Tensor loss = torch::mse_loss(forward(batch[0]), batch[1]);
        manual_backward(loss);
        return loss;
      });
      return {};
    }
    OptimizerConfig configure_optimizers() override { return LBFGS(parameters(), {.max_iter = 5}); }
    int64_t evaluations = 0;
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(12, 4));
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_GT(module.evaluations, 3);
}

TEST(AutomaticOptimization, RefusesTwoOptimizers) {
  TwoPlayers module;
  module.set_automatic_optimization(true);
  const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "configure_optimizers returned 2 optimizers")) << error;
  EXPECT_TRUE(has(error, "set_automatic_optimization(false)")) << error;
}

TEST(AutomaticOptimization, RefusesManualBackward) {
  struct Wrong : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      manual_backward(forward(batch[0]).sum());
      return {};
    }
  } module;
  const std::string error = error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "manual_backward: the module uses automatic optimization")) << error;
}

// ---- losses ---------------------------------------------------------------------------------------------------------

/// Returns whatever a test wants as its loss.
class LossModule : public TinyModule {
 public:
  using Make = std::function<at::Tensor(LossModule&, const Batch&)>;
  explicit LossModule(Make make) : make_(std::move(make)) {}
  at::Tensor training_step(const Batch& batch, int64_t) override { return make_(*this, batch); }

 private:
  Make make_;
};

TEST(AutomaticOptimization, SaysWhatIsWrongWithALoss) {
  LossModule detached([](LossModule& m, const Batch& b) { return m.forward(b[0]).mean().detach(); });
  std::string error = error_of([&] { Trainer(quiet(1, {})).fit(detached, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "training_step: the loss has no gradient")) << error;
  LossModule vector([](LossModule& m, const Batch& b) { return m.forward(b[0]); });
  error = error_of([&] { Trainer(quiet(1, {})).fit(vector, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "training_step: the loss must be one number, got 4 elements")) << error;
}

TEST(AutomaticOptimization, AnUndefinedLossLeavesTheWeightsAndCountsTheStep) {
  int ended = 0;
  LambdaCallback watch(
      {.on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) {
        EXPECT_FALSE(loss.defined());
        ++ended;
      }});
  LossModule module([](LossModule&, const Batch&) { return at::Tensor(); });
  const at::Tensor before = module.layer->weight.detach().clone();
  Trainer trainer(quiet(1, watch));
  trainer.fit(module, tiny_loader(12, 4));
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_TRUE(module.layer->weight.equal(before));
}

TEST(AutomaticOptimization, WithoutAnOptimizerWarnsAndRuns) {
  const CapturedConsole console;
  TinyModule module;
  module.make_optimizers = [](TinyModule&) { return OptimizerConfig(); };
  const at::Tensor before = module.layer->weight.detach().clone();
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(12, 4));
  EXPECT_EQ(trainer.current_epoch(), 1);
  EXPECT_TRUE(module.layer->weight.equal(before));
  EXPECT_TRUE(console.has("configure_optimizers returned no optimizer"));
}

TEST(AutomaticOptimization, LbfgsEvaluatesOftenAndCountsOneStep) {
  int evaluations = 0, backwards = 0;
  TinyModule module;
  module.on_training_step = [&](int64_t) { ++evaluations; };
  module.make_optimizers = [](TinyModule& m) { return LBFGS(m.parameters(), {.max_iter = 20}); };
  LambdaCallback count({.on_after_backward = [&](Trainer&, LightningModule&) { ++backwards; }});
  Trainer trainer(quiet(1, count));
  trainer.fit(module, tiny_loader(16, 16));
  EXPECT_EQ(trainer.global_step(), 1);
  EXPECT_GT(evaluations, 5);
  EXPECT_EQ(backwards, evaluations);
  // A linear model's best loss is known: least squares.
  Batch batch;
  const auto loader = tiny_loader(16, 16);
  loader->start(0, 0);
  ASSERT_TRUE(loader->next(batch));
  const at::Tensor x = torch::cat({batch[0], torch::ones({16, 1})}, 1).to(at::kDouble), y = batch[1].to(at::kDouble);
  const at::Tensor best = x.matmul(torch::linalg_pinv(x)).matmul(y);
  const double least = (best - y).square().mean().item().toDouble();
  const double reached = torch::mse_loss(module.forward(batch[0]), batch[1]).item().toDouble();
  EXPECT_NEAR(reached, least, 1e-3);
}

// ---- schedulers -----------------------------------------------------------------------------------------------------

TinyModule& decaying(TinyModule& module, LRSchedulerOptions when) {
  module.make_optimizers = [when](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 1.0}), StepLR({.step_size = 1, .gamma = 0.5}), when);
  };
  return module;
}

/// How often StepLR moved.
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

TEST(Schedulers, PlateauWithoutItsMetricIsAnErrorUnlessToldOtherwise) {
  TinyModule module;
  const std::string error =
      error_of([&] { Trainer(quiet(1, {})).fit(watching(module, "val_los", true), tiny_loader(8), tiny_loader(8)); });
  EXPECT_TRUE(has(error, "ReduceLROnPlateau: metric \"val_los\" was never logged by epoch 0")) << error;
  EXPECT_TRUE(has(error, "Logged: train_loss, v, val_loss")) << error;
  EXPECT_TRUE(has(error, "Did you mean \"val_loss\"?")) << error;

  const CapturedConsole console;
  Trainer trainer(quiet(2, {}));
  trainer.fit(watching(module, "val_los", false), tiny_loader(8), tiny_loader(8));
  EXPECT_DOUBLE_EQ(learning_rate(trainer), 1.0);
  EXPECT_TRUE(console.has("\"val_los\" was never logged"));
  EXPECT_TRUE(console.has("The learning rate stays as it is."));
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
  std::ifstream file(LEVIN_SOURCE_DIR "/tests/data/reference/schedulers.json");
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

TEST(OneCycleInARun, SaysWhereTheLengthIsNotKnown) {
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
      if (batch_idx == 1) lr_schedulers().at(0).scheduler->step();
      return {};
    }
    OptimizerConfig configure_optimizers() override {
      return {SGD({g}, {.lr = 1.0}), StepLR({.step_size = 1, .gamma = 0.5}), {.interval = Interval::step}};
    }
  } module;
  Trainer trainer(quiet(1, {}));
  trainer.fit(module, tiny_loader(20, 4));
  EXPECT_DOUBLE_EQ(moves(trainer), 1);
}

}  // namespace
}  // namespace levin::optimization_test
