// 16-mixed in whole fits, on the CPU: what an overflow skips and what it leaves alone, against hand-written LibTorch
// loops.
#include "levin/precision/mixed_precision.h"

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
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/step/window_verdict.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "trainer/overflowing.h"

namespace levin::mixed_precision_test {
namespace {

using namespace test;

/// The training of Overflowing as a hand-written LibTorch loop.
struct ByHand {
  torch::nn::Linear layer{4, 1};
  double scale = 1024;
  int64_t good_steps = 0;
  int64_t skipped = 0;

  ByHand() {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}}));
    layer->bias.zero_();
  }

  at::Tensor loss(const Batch& batch) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    const at::Tensor loss = torch::mse_loss(layer->forward(batch[0]), batch[1]);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::clear_cache();
    return loss;
  }

  /// `growth_interval` good steps double the scale, one bad halves it.
  void run(int64_t epochs, const std::set<int64_t>& overflow_at, int64_t window, int64_t growth_interval, double clip) {
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    int64_t seen = 0;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      for (int64_t first = 0; first < 6; first += window) {
        optimizer.zero_grad();
        for (int64_t i = first; i < first + window; ++i) {
          const Batch batch = {tensor(0, i), tensor(1, i)};
          at::Tensor part = loss(batch);
          if (overflow_at.contains(seen++)) part = part * 1e6;
          if (window > 1) part = part / window;
          (part * scale).backward();
        }
        step(optimizer, growth_interval, clip);
      }
    }
  }

 private:
  static at::Tensor tensor(int64_t which, int64_t batch) {
    const at::Tensor i = torch::arange(batch * 4, batch * 4 + 4).unsqueeze(1), j = torch::arange(4).unsqueeze(0);
    if (which == 0) return (i * 7 + j * 3).remainder(17).to(at::kFloat) / 17 - 0.5;
    return i.remainder(5).to(at::kFloat) / 5;
  }

  void step(torch::optim::SGD& optimizer, int64_t growth_interval, double clip) {
    bool finite = true;
    for (auto& parameter : layer->parameters()) {
      parameter.mutable_grad() /= scale;
      finite = finite && parameter.grad().isfinite().all().item<bool>();
    }
    if (!finite) {
      scale *= 0.5;
      good_steps = 0;
      ++skipped;
      return;
    }
    if (clip > 0) torch::nn::utils::clip_grad_norm_(layer->parameters(), clip);
    optimizer.step();
    if (++good_steps == growth_interval) {
      scale *= 2;
      good_steps = 0;
    }
  }
};

TEST(MixedPrecision16, AnOverflowSkipsTheStepAndNothingElse) {
  const CapturedConsole console;
  Overflowing module({2});
  TrainerOptions options = with(float16());
  options.log_every_n_steps = 1;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 5);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.logging_step(), 6);
  EXPECT_EQ(trainer.seen_batches(), 6);
  EXPECT_EQ(module.steps, 5);
  EXPECT_EQ(scale_of(trainer), 512);
  EXPECT_TRUE(console.has("16-mixed: 1 of 6 optimizer steps were skipped") && console.has("The loss scale is 512"))
      << console.text();
  Overflowing without;  // the run without the batch
  Trainer(with(float16(), 1,
               {LambdaCallback({.on_train_batch_start =
                                    [](Trainer& t, LightningModule&, const Batch&, int64_t b) {
                                      if (b == 2) t.skip_batch();
                                    }})}))
      .fit(without, tiny_loader(24));
  EXPECT_TRUE(torch::allclose(module.layer->weight, without.layer->weight, 1e-4, 1e-6));
}

TEST(MixedPrecision16, TrainsAsALoopByHand) {
  const std::set<int64_t> overflow_at = {1, 2, 9, 17};
  for (const double clip : {0.0, 0.05}) {
    Overflowing module(overflow_at);
    TrainerOptions options = with(float16({.init_scale = 1024, .growth_interval = 3}), 3);
    options.gradient_clip_val = clip;
    const CapturedConsole console;
    Trainer trainer(options);
    trainer.fit(module, tiny_loader(24));
    ByHand hand;
    hand.run(3, overflow_at, 1, 3, clip);
    EXPECT_EQ(hand.skipped, 4);
    EXPECT_EQ(trainer.skipped_steps(), hand.skipped);
    EXPECT_EQ(trainer.global_step(), 18 - hand.skipped);
    EXPECT_EQ(scale_of(trainer), hand.scale);
    EXPECT_TRUE(torch::allclose(module.layer->weight, hand.layer->weight, 1e-6, 1e-7)) << clip;
    EXPECT_TRUE(torch::allclose(module.layer->bias, hand.layer->bias, 1e-6, 1e-7)) << clip;
  }
}

TEST(MixedPrecision16, AWindowWithAnOverflowIsSkippedWholeAndMovesTheScaleOnce) {
  const std::set<int64_t> overflow_at = {4, 13};  // in the middle of windows 1 and 4
  Overflowing module(overflow_at);
  std::vector<double> scales;
  TrainerOptions options = with(
      float16({.init_scale = 1024, .growth_interval = 2}), 3,
      {LambdaCallback({.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&,
                                                 int64_t) { scales.push_back(scale_of(trainer)); }})});
  options.accumulate_grad_batches = 3;
  const CapturedConsole console;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 4);
  EXPECT_EQ(trainer.skipped_steps(), 2);
  EXPECT_EQ(trainer.logging_step(), 6);
  const std::vector<double> expected = {1024, 1024, 1024, 1024, 1024, 512, 512, 512, 512,
                                        512,  512,  1024, 1024, 1024, 512, 512, 512, 512};
  EXPECT_EQ(scales, expected);
  ByHand hand;
  hand.run(3, overflow_at, 3, 2, 0);
  EXPECT_EQ(hand.skipped, 2);
  EXPECT_TRUE(torch::allclose(module.layer->weight, hand.layer->weight, 1e-6, 1e-7));
}

TEST(MixedPrecision16, CallbacksAndClippingSeeGradientsAsInFloat32) {
  Overflowing half, full;
  TrainerOptions options = with(float16());
  options.gradient_clip_val = 0.01;
  Trainer(options).fit(half, tiny_loader(4));
  options.precision = "32-true";
  Trainer(options).fit(full, tiny_loader(4));
  ASSERT_EQ(half.grads.size(), 1U);
  EXPECT_TRUE(torch::allclose(half.grads[0], full.grads[0], 1e-2, 1e-4)) << half.grads[0] << full.grads[0];
  const at::Tensor start = torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}});
  const at::Tensor moved = torch::cat({(half.layer->weight - start).flatten(), half.layer->bias});
  EXPECT_NEAR(moved.norm().item<double>(), 0.1 * 0.01, 1e-6);  // lr times the largest norm
  EXPECT_TRUE(torch::allclose(half.layer->weight, full.layer->weight, 1e-2, 1e-5));
}

TEST(MixedPrecision16, HooksBeforeTheWindowsEndSeeTheLossUnscaled) {
  std::vector<double> losses;
  Overflowing module;
  Trainer(with(float16(), 1,
               {LambdaCallback(
                   {.on_before_backward = [&](Trainer&, LightningModule&,
                                              const at::Tensor& loss) { losses.push_back(loss.item<double>()); }})}))
      .fit(module, tiny_loader(4));
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_LT(losses[0], 1.0);
}

TEST(MixedPrecision16, SchedulersStayWhereTheyAreOnASkippedStep) {
  Overflowing stepped({0, 3});
  stepped.make_optimizers = [](TinyModule& m) {
    OptimizerConfig config = SGD(m.parameters(), {.lr = 1.0});
    config.schedule(StepLR({.step_size = 1, .gamma = 0.5}), {.interval = Interval::step});
    return config;
  };
  const CapturedConsole console;
  Trainer trainer(with(float16()));
  trainer.fit(stepped, tiny_loader(24));
  EXPECT_EQ(trainer.optimizers()[0].optimizer().param_groups()[0].lr, std::pow(0.5, 4));
  // The same for schedulers that watch a metric: with a metric that never improves, every step counts.
  Overflowing plateau({0, 3});
  plateau.make_optimizers = [](TinyModule& m) {
    OptimizerConfig config = SGD(m.parameters(), {.lr = 1.0});
    config.schedule(ReduceLROnPlateau({.mode = PlateauMode::max, .factor = 0.5, .patience = 0, .threshold = 1e9}),
                    {.interval = Interval::step, .monitor = "train_loss"});
    return config;
  };
  Trainer other(with(float16()));
  other.fit(plateau, tiny_loader(24));
  EXPECT_EQ(other.optimizers()[0].optimizer().param_groups()[0].lr, std::pow(0.5, 3));  // the first is the best so far
}

TEST(MixedPrecision16, MaxStepsCountsStepsThatWereTaken) {
  Overflowing module({0, 1, 4});
  TrainerOptions options = with(float16(), -1);
  options.max_steps = 5;
  const CapturedConsole console;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 5);
  EXPECT_EQ(trainer.seen_batches(), 8);
}

TEST(MixedPrecision16, ACheckpointHoldsScaleAndCount) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const std::string path = folder.path() + "/last.ckpt";
  const GradScalerOptions scaling = {.init_scale = 1024, .growth_interval = 4};
  Overflowing module({1, 2});
  {
    Trainer trainer(with(float16(scaling)));
    trainer.fit(module, tiny_loader(24));
    trainer.save_checkpoint(path);
  }
  Overflowing again;
  Trainer trainer(with(float16(scaling), 2));
  trainer.fit(again, tiny_loader(24), Loaders{}, path);
  EXPECT_EQ(trainer.skipped_steps(), 2);
  EXPECT_EQ(trainer.global_step(), 10);
  EXPECT_EQ(scale_of(trainer), 1024);  // 256, and doubled after four and after eight good steps
  Overflowing plain;                   // other precisions read it as well
  TrainerOptions options = quiet(2, {});
  EXPECT_EQ(error_of([&] { Trainer(options).fit(plain, tiny_loader(24), Loaders{}, path); }), "");
}

TEST(MixedPrecision16, StopsWhenNoScaleHelps) {
  struct Broken : TinyModule {
    at::Tensor training_step(const Batch&, int64_t) override {
      return (layer->bias * 0).sqrt().sum();  // 0, and its gradient is not finite
    }
  } module;
  const CapturedConsole console;
  TrainerOptions options = with(float16({}), -1);
  options.max_steps = 10;
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "16-mixed: gradients are inf or nan at a loss scale of") && has(error, "31 steps skipped") &&
              has(error, "detect_anomaly") && has(error, "bf16-mixed"))
      << error;
  EXPECT_TRUE(console.has("the loss scale has fallen below 1"));
  EXPECT_EQ(console.lines().size(), 1U) << console.text();  // printed once
}

// ---- what the forward pass computes ---------------------------------------------------------------------------------

TEST(MixedPrecision16, OnACpuItsNameMeansBfloat16AndReportsIt) {
  for (const std::string name : {"16-mixed", "16"}) {
    const CapturedConsole console;
    TrainerOptions options = quiet(1, {});
    options.precision = name;
    Trainer trainer(options);
    EXPECT_EQ(trainer.plan().precision, "bf16-mixed");
    ASSERT_EQ(console.lines().size(), 1U) << console.text();
    EXPECT_TRUE(console.has("16-mixed is for GPUs; on a CPU bf16-mixed is used") &&
                console.has("class_path: MixedPrecision"))
        << console.text();
    TinyModule module;
    at::ScalarType seen{};
    module.on_training_step = [&](int64_t) { seen = module.layer->forward(torch::ones({1, 4})).scalar_type(); };
    trainer.fit(module, tiny_loader(4));
    EXPECT_EQ(seen, at::kBFloat16);
  }
  EXPECT_EQ(Trainer(with(float16())).plan().precision, "16-mixed");
}

TEST(MixedPrecision16, AForwardPassWithoutGradientsFirstDoesNotCostTheGradient) {
  // A teacher that is the network itself, for example. A cache of casts would hold one without a graph.
  struct SelfTaught : TinyModule {
    at::Tensor training_step(const Batch& batch, int64_t) override {
      at::Tensor target;
      {
        const torch::NoGradGuard no_grad;
        target = layer->forward(batch[0]) + 1;
      }
      return torch::mse_loss(layer->forward(batch[0]), target);
    }
  };
  for (const bool half : {true, false}) {
    SelfTaught module;
    TrainerOptions options = quiet(1, {});
    options.precision = "bf16-mixed";
    if (half) options.precision = float16();
    Trainer(options).fit(module, tiny_loader(4));
    EXPECT_FALSE(torch::equal(module.layer->weight, torch::tensor({{0.01F, 0.02F, 0.03F, 0.04F}}))) << half;
  }
}

TEST(MixedPrecision16, WithoutAScalerNothingIsScaledOrSkipped) {
  Overflowing module({2});
  TrainerOptions options = with(MixedPrecision({.dtype = MixedDtype::float16, .scaler = std::nullopt}));
  options.nonfinite_loss = NonFiniteLoss::ignore;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_EQ(trainer.skipped_steps(), 0);
  EXPECT_FALSE(module.layer->weight.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace levin::mixed_precision_test
