// Why a step cannot be recorded, in one sentence each.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/optim/lbfgs.h"
#include "levin/strategies/process/ddp.h"
#include "support/repeating_strategy.h"
#include "support/tiny_module.h"

namespace levin::step_graph_refusals_test {
namespace {

using namespace test;

struct Manual : TinyModule {
  Manual() { set_automatic_optimization(false); }
};
struct LogsFromTheHost : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    log("number", 3.0);
    return TinyModule::training_step(batch, batch_idx);
  }
};
struct NoLoss : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    return batch_idx < 3 ? TinyModule::training_step(batch, batch_idx) : at::Tensor();
  }
};

std::string refusal(TinyModule& module, TrainerOptions options = quiet(1, {}),
                    const std::shared_ptr<DeviceLog>& log = std::make_shared<DeviceLog>()) {
  options.record_steps = true;
  if (options.strategy.is_name("auto")) options.strategy = RepeatingStrategy(log);
  const std::string error = error_of([&] { Trainer(options).fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "TrainerOptions.record_steps: ")) << error;
  return error;
}

TEST(StepGraphRefusals, NameWhatIsInTheWay) {
  TinyModule module;
  module.make_optimizers = [](TinyModule& m) { return OptimizerConfig(LBFGS(m.parameters())); };
  EXPECT_TRUE(has(refusal(module), "LBFGS evaluates the model as often as the losses ask for"));
  module.make_optimizers = [](TinyModule&) { return OptimizerConfig(); };
  EXPECT_TRUE(has(refusal(module), "no optimizer"));
  Manual manual;
  EXPECT_TRUE(has(refusal(manual), "manual optimization"));
}

TEST(StepGraphRefusals, NameTheOptionThatIsInTheWay) {
  TinyModule module;
  TrainerOptions options = quiet(1, {});
  options.strategy = "dp";
  EXPECT_TRUE(
      has(refusal(module, options),
          "steps of dp on cpu cannot be recorded; steps of single_device can, and of ddp on CPUs and over NCCL."));
  options.strategy = DDP({.find_unused_parameters = true});
  EXPECT_TRUE(has(refusal(module, options), "DDPOptions.find_unused_parameters finds on the host which parameters"));
  options = quiet(1, {});
  options.detect_anomaly = true;
  EXPECT_TRUE(has(refusal(module, options), "detect_anomaly looks at gradients on the host"));
  const auto error = refusal(module, quiet(1, {LambdaCallback(LambdaHooks{})}));
  EXPECT_TRUE(has(error, "the callback LambdaCallback acts around backward")) << error;
}

TEST(StepGraphRefusals, NameWhatTheStepDoesOnTheHost) {
  LogsFromTheHost logs;
  EXPECT_TRUE(has(refusal(logs), "training_step logs \"number\" from the host")) << "and says to log a tensor";
  NoLoss none;
  EXPECT_TRUE(has(refusal(none), "training_step returned no loss for batch 3"));
  TinyModule waits;
  const auto log = std::make_shared<DeviceLog>();
  log->wait = "CUDA error: operation not permitted when stream is capturing\nmore";
  const std::string error = refusal(waits, quiet(1, {}), log);
  EXPECT_TRUE(has(error, "something in it waits for the GPU (item(), cpu(), a branch")) << error;
  EXPECT_TRUE(has(error, "operation not permitted when stream is capturing")) << error;
  EXPECT_FALSE(has(error, "\n")) << error;
}

}  // namespace
}  // namespace levin::step_graph_refusals_test
