// A step engine in a hand-written loop gives weights that are bitwise identical to the Trainer's.
#include "levin/trainer/step/step_engine.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "callbacks/quiet_trainer.h"
#include "levin/optim/adam.h"
#include "levin/precision/full_precision.h"
#include "levin/precision/mixed_precision.h"
#include "levin/profilers/time_split.h"
#include "levin/strategies/device/single_device.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/step/step_hooks.h"
#include "levin/trainer/step_output.h"
#include "support/error_text.h"
#include "support/tiny_module.h"

namespace levin::step_engine_test {
namespace {

using namespace test;

class Net : public LightningModule {
 public:
  Net() {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::linspace(-0.3, 0.4, parameter.numel()).view_as(parameter));
    }
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    ++steps;
    return torch::mse_loss(layers->forward(batch[0]), batch[1]);
  }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.05}); }

  int64_t steps = 0;
  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)))};
};

std::vector<Batch> batches(int64_t count) {
  const auto loader = tiny_loader(4 * count);
  std::vector<Batch> all;
  loader->start(0, 0);
  for (Batch batch; loader->next(batch);) all.push_back(batch);
  return all;
}

// All that a loop needs of Levin below the Trainer.
class OwnLoop {
 public:
  explicit OwnLoop(Net& module, StepSettings settings = {}, std::shared_ptr<Precision> precision = nullptr)
      : precision_(precision != nullptr ? std::move(precision) : std::make_shared<SinglePrecision>()),
        engine({.module = module,
                .strategy = strategy_,
                .precision = *precision_,
                .hooks = hooks_,
                .running = running_,
                .counters = counters,
                .time_split = time_split_,
                .outputs = outputs_,
                .replicas = replicas_,
                .recomputation = recomputation_,
                .settings = std::move(settings)}) {
    engine.use(module.configure_optimizers().optimizers());
    engine.begin();
  }
  ~OwnLoop() { engine.end(); }
  OwnLoop(const OwnLoop&) = delete;
  OwnLoop& operator=(const OwnLoop&) = delete;

  /// Trains on each of `data` once; `accumulate` batches make a step.
  void train(const std::vector<Batch>& data, int64_t accumulate = 1) {
    const auto count = static_cast<int64_t>(data.size());
    counters.accumulate = accumulate;
    for (int64_t k = 0; k < count; ++k) {
      if (!engine.window_is_open()) engine.open_window(std::min(accumulate, count - k), k);
      loss = engine.step(data[static_cast<size_t>(k)], {.batch_idx = k, .total_batches = k});
      if (engine.window_is_done()) engine.close_window();
    }
  }

 private:
  SingleDeviceStrategy strategy_;
  std::shared_ptr<Precision> precision_;
  StepHooks hooks_;
  RunningHook running_;
  TimeSplit time_split_;
  StepOutput outputs_;
  std::shared_ptr<ModuleReplicas> replicas_ = nullptr;
  std::shared_ptr<Recomputation> recomputation_ = nullptr;

 public:
  StepCounters counters = {};
  StepEngine engine;
  at::Tensor loss = {};  // of the last batch
};

void expect_equal(const Net& one, const Net& other) {
  const auto parameters = other.parameters();
  for (size_t k = 0; k < parameters.size(); ++k) EXPECT_TRUE(at::equal(one.parameters()[k], parameters[k])) << k;
}

// That the module has the Trainer's weights after one epoch of this many batches.
void expect_trainers(const Net& module, TrainerOptions options, int64_t count) {
  Net other;
  Trainer(std::move(options)).fit(other, tiny_loader(4 * count));
  expect_equal(module, other);
}

TEST(StepEngine, AHandWrittenLoopEndsAtTheTrainersWeights) {
  TrainerOptions options = quiet(1, {});
  options.accumulate_grad_batches = int64_t{3};
  options.gradient_clip_val = 0.1;
  Net module;
  OwnLoop loop(module, {.gradient_clip_val = 0.1});
  loop.train(batches(8), 3);
  EXPECT_EQ(loop.counters.global_step, 3);  // the last window holds two batches
  expect_trainers(module, options, 8);
}

TEST(StepEngine, MicroBatchesAndMixedPrecisionAreTheTrainers) {
  TrainerOptions options = quiet(1, {});
  options.micro_batch_size = int64_t{3};
  options.precision = "bf16-mixed";
  Net module;
  OwnLoop loop(module, {.micro_batch_size = 3}, std::make_shared<Bfloat16Mixed>());
  loop.train(batches(6));
  EXPECT_EQ(module.steps, 12);
  expect_trainers(module, options, 6);
}

TEST(StepEngine, RecordedStepsCallTheModuleSeldom) {
  Net module, plain;
  OwnLoop recorded(module, {.record_steps = RecordSteps::yes}), eager(plain);
  recorded.train(batches(40));
  eager.train(batches(40));
  EXPECT_EQ(plain.steps, 40);
  EXPECT_LT(module.steps, 15);
  expect_equal(module, plain);
}

TEST(StepEngine, ALossThatIsNotFiniteStopsOrIsSkipped) {
  std::vector<Batch> data = batches(3);
  data[1][1] = data[1][1] + std::numeric_limits<float>::quiet_NaN();
  Net stopped, skipped, without;
  OwnLoop stops(stopped), skips(skipped, {.nonfinite_loss = NonFiniteLoss::skip}), other(without);
  expect_parts(error_of<NonFiniteLossError>([&] { stops.train(data); }), {"the loss is nan", "batch 1"});
  skips.train(data);
  other.train({data[0], data[2]});
  EXPECT_EQ(skips.counters.global_step, 2);
  EXPECT_EQ(skips.engine.nonfinite_losses(), 1);
  expect_equal(skipped, without);
}

TEST(StepEngine, AnOpenWindowIsSavedAndContinued) {
  const std::vector<Batch> data = batches(4);
  Net module, whole;
  OwnLoop loop(module), other(whole);
  loop.engine.open_window(4, 0);
  (void)loop.engine.step(data[0], {.batch_idx = 0});
  State saved;
  StepEngine::save(&loop.engine, saved, /*in_batch=*/false, /*failing=*/false);
  OwnLoop again(module);  // the gradients are still there
  again.engine.load(saved, /*next_batch=*/1);
  ASSERT_TRUE(again.engine.window_is_open());
  for (int64_t k = 1; k < 4; ++k) (void)again.engine.step(data[static_cast<size_t>(k)], {.batch_idx = k});
  EXPECT_TRUE(again.engine.window_is_done());
  other.train(data, 4);
  expect_equal(module, whole);
}

}  // namespace
}  // namespace levin::step_engine_test
