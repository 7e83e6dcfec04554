// Manual optimization with 16-mixed: each optimizer is skipped alone, and gradients follow the scale.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/step/window_verdict.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/overflowing.h"

namespace levin::scaled_manual_steps_test {
namespace {

using namespace test;

/// Two layers with an optimizer each; the loss of either may overflow.
struct TwoLayers : LightningModule {
  TwoLayers() {
    set_automatic_optimization(false);
    const torch::NoGradGuard no_grad;
    first->weight.fill_(0.1);
    second->weight.fill_(0.2);
  }
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    for (size_t i = 0; i < 2; ++i) {
      if (batch_idx % step_every[i] == 0) optimizer(i).zero_grad();
      const at::Tensor loss = torch::mse_loss((i == 0 ? first : second)->forward(batch[0]), batch[1]);
      manual_backward(overflow_at[i].contains(batch_idx) ? loss * 1e6 : loss);
      if ((batch_idx + 1) % step_every[i] != 0) continue;
      if (clip > 0) clip_gradients(optimizer(i), clip);
      optimizer(i).step();
    }
    return {};
  }
  OptimizerConfig configure_optimizers() override {
    OptimizerConfig config = SGD(first->parameters(), {.lr = 0.1});
    config.add(SGD(second->parameters(), {.lr = 0.1}));
    return config;
  }
  void on_before_optimizer_step(Optimizer& optimizer) override {
    norms.push_back(optimizer.parameters()[0].grad().norm().item<double>());
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(torch::nn::LinearOptions(4, 1).bias(false)))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(torch::nn::LinearOptions(4, 1).bias(false)))};
  std::array<std::set<int64_t>, 2> overflow_at;
  std::array<int64_t, 2> step_every = {1, 1};
  double clip = 0;
  std::vector<double> norms;
};

/// The same module trained in float32, leaving out the steps in `skipped`.
struct TwoLayersPlain : TwoLayers {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    for (size_t i = 0; i < 2; ++i) {
      if (batch_idx % step_every[i] == 0) optimizer(i).zero_grad();
      torch::mse_loss((i == 0 ? first : second)->forward(batch[0]), batch[1]).backward();
      if ((batch_idx + 1) % step_every[i] != 0 || skipped[i].contains(batch_idx)) continue;
      if (clip > 0) clip_gradients(optimizer(i), clip);
      optimizer(i).optimizer().step();
    }
    return {};
  }
  std::array<std::set<int64_t>, 2> skipped;
};

void expect_close(const TwoLayers& one, const TwoLayers& other) {
  EXPECT_TRUE(torch::allclose(one.first->weight, other.first->weight, 1e-2, 1e-3)) << one.first->weight;
  EXPECT_TRUE(torch::allclose(one.second->weight, other.second->weight, 1e-2, 1e-3)) << one.second->weight;
  EXPECT_FALSE(torch::allclose(one.first->weight, torch::full({1, 4}, 0.1), 1e-2, 1e-3));  // it did train
}

TEST(MixedPrecision16, ManualOptimizationSkipsTheOptimizerThatOverflowedAlone) {
  TwoLayers module;
  module.overflow_at = {std::set<int64_t>{1}, std::set<int64_t>{1, 3}};
  const CapturedConsole console;
  Trainer trainer(with(float16({.init_scale = 1024, .growth_interval = 2})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 12 - 3);
  EXPECT_EQ(trainer.skipped_steps(), 3);
  // Once a batch: falls in batches 1 and 3, grows after 4 and 5. Two updates a batch would have moved it twice as
  // often.
  EXPECT_EQ(scale_of(trainer), 512);
  TwoLayersPlain plain;
  plain.skipped = module.overflow_at;
  Trainer(quiet(1, {})).fit(plain, tiny_loader(24));
  expect_close(module, plain);
}

TEST(MixedPrecision16, ManualClippingClipsUnscaledGradients) {
  TwoLayers module;
  module.clip = 0.01;
  Trainer(with(float16())).fit(module, tiny_loader(24));
  ASSERT_EQ(module.norms.size(), 12U);
  for (const double norm : module.norms) EXPECT_NEAR(norm, 0.01, 1e-4);
  TwoLayersPlain plain;
  plain.clip = 0.01;
  Trainer(quiet(1, {})).fit(plain, tiny_loader(24));
  EXPECT_TRUE(torch::allclose(module.first->weight, plain.first->weight, 1e-3, 1e-5));
}

TEST(MixedPrecision16, GradientsThatOneOptimizerCollectsKeepStepWithTheScaleOfTheOther) {
  TwoLayers module;
  module.step_every = {1, 3};
  module.overflow_at[0] = {0, 3};  // the scale falls while the second optimizer collects
  const CapturedConsole console;
  Trainer trainer(with(float16({.init_scale = 1024, .backoff_factor = 0.125, .growth_interval = 100})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(scale_of(trainer), 16);
  TwoLayersPlain plain;
  plain.step_every = {1, 3};
  plain.skipped[0] = {0, 3};
  Trainer(quiet(1, {})).fit(plain, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 4 + 2);
  expect_close(module, plain);
}

TEST(MixedPrecision16, ALossOfNanStopsManualOptimizationToo) {
  struct Bad : TwoLayers {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      manual_backward(second->forward(batch[0]).sum() * (batch_idx == 3 ? NAN : 1.0));
      optimizer(1).step();
      optimizer(1).zero_grad();
      return {};
    }
  } module;
  const std::string error = error_of([&] { Trainer(with(float16())).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "the loss is nan in epoch 0, batch 3, global step 3")) << error;
  EXPECT_TRUE(module.second->weight.isfinite().all().item<bool>());
}

TEST(MixedPrecision16, BackwardInAStepRunsOutsideOfAutocast) {
  struct Looking : TwoLayers {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      in_step = at::autocast::is_autocast_enabled(at::kCPU);
      manual_backward(first->forward(batch[0]).sum());
      in_step_after = at::autocast::is_autocast_enabled(at::kCPU);
      return {};
    }
    void on_after_backward() override { in_backward = at::autocast::is_autocast_enabled(at::kCPU); }
    bool in_step = false, in_step_after = false, in_backward = true;
  } module;
  Trainer(with(float16())).fit(module, tiny_loader(4));
  EXPECT_TRUE(module.in_step && module.in_step_after);
  EXPECT_FALSE(module.in_backward);
}

TEST(MixedPrecision16, OptimizersThatNeedAClosureAreRefused) {
  TinyModule automatic;
  automatic.make_optimizers = [](TinyModule& m) { return LBFGS(m.parameters()); };
  const std::string error = error_of([&] { Trainer(with(float16())).fit(automatic, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "TrainerOptions.precision: 16-mixed") && has(error, "LBFGS") && has(error, "bf16-mixed"))
      << error;
  struct Closure : TwoLayers {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      optimizer(0).step([&] {
        const at::Tensor loss = first->forward(batch[0]).sum();
        manual_backward(loss);
        return loss;
      });
      return {};
    }
  } manual;
  const std::string in_step = error_of([&] { Trainer(with(float16())).fit(manual, tiny_loader(24)); });
  EXPECT_TRUE(has(in_step, "SGD: step(closure) is not possible with 16-mixed") && has(in_step, "then step()"))
      << in_step;
}

TEST(MixedPrecision16, AStepThatContinuesAfterAnUpdateSeesTheNewWeights) {
  struct Twice : TwoLayers {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      before = first->forward(batch[0]).sum();
      manual_backward(before);
      optimizer(0).step();
      after = first->forward(batch[0]).sum();
      return {};
    }
    at::Tensor before, after;
  } module;
  Trainer(with(float16())).fit(module, tiny_loader(4));
  const at::Tensor change = module.after - module.before;
  EXPECT_GT(change.abs().item<double>(), 1e-3);
}

}  // namespace
}  // namespace levin::scaled_manual_steps_test
