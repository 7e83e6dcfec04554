// Manual optimization: the module steps its optimizers.
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

namespace levin::manual_optimization_test {
namespace {

using namespace test;

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
  EXPECT_TRUE(
      has(error, "TrainerOptions.gradient_clip_val: 0.5 has no meaning with manual optimization. Call clip_gradients("))
      << error;
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
      toggle_optimizer(optimizer(0));
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

}  // namespace
}  // namespace levin::manual_optimization_test
