// What one training batch does to the weights: windows, clipping, manual optimization, closures, schedulers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/adam.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"
#include "trainer/two_players.h"

namespace levin::optimization_test {
namespace {

using namespace test;

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

/// Trains the same with Levin, with `n` micro-batches of 8 / n samples per step.
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

// ---- automatic optimization
// -------------------------------------------------------------------------------------------

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

/// Returns the loss that a test sets.
class LossModule : public TinyModule {
 public:
  using Make = std::function<at::Tensor(LossModule&, const Batch&)>;
  explicit LossModule(Make make) : make_(std::move(make)) {}
  at::Tensor training_step(const Batch& batch, int64_t) override { return make_(*this, batch); }

 private:
  Make make_;
};

TEST(AutomaticOptimization, ReportsWhatIsWrongWithALoss) {
  LossModule detached([](LossModule& m, const Batch& b) { return m.forward(b[0]).mean().detach(); });
  std::string error = error_of([&] { Trainer(quiet(1, {})).fit(detached, tiny_loader(8)); });
  const std::string place = "training_step, epoch 0, batch 0, global step 0: ";
  EXPECT_TRUE(error.starts_with(place + "the loss has no gradient")) << error;
  LossModule vector([](LossModule& m, const Batch& b) { return m.forward(b[0]); });
  error = error_of([&] { Trainer(quiet(1, {})).fit(vector, tiny_loader(8)); });
  EXPECT_TRUE(error.starts_with(place + "the loss must be one number, got 4 elements")) << error;
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

}  // namespace
}  // namespace levin::optimization_test
