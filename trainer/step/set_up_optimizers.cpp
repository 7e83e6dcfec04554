#include "levin/trainer/step/set_up_optimizers.h"

#include <string>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/optim/averaging_optimizer.h"
#include "levin/optim/whole_tensors.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/step/configured_training.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/lr_scaling.h"
#include "levin/trainer/step/lr_schedulers.h"
#include "levin/trainer/step/micro_batching.h"

namespace levin {

namespace {

bool needs_all_weights(const Optimizer& optimizer) {
  const auto* by_tensor = dynamic_cast<const WholeTensorUpdate*>(&optimizer);
  return optimizer.needs_closure() || (by_tensor != nullptr && by_tensor->updates_whole_tensors()) ||
         dynamic_cast<const AveragingOptimizer*>(&optimizer) != nullptr;
}

}  // namespace

void set_up_optimizers(Run& run) {
  if (run.fit.effective_batch_size > 0 && !run.fit.train.loaded) load_train_loader(run);
  OptimizerConfig config =
      call_module(run.entry, Hook::configure_optimizers, [](LightningModule& m) { return m.wanted_optimizers(); });
  if (config.optimizers().empty()) {
    Console::instance().warn("configure_optimizers returned no optimizer: the weights will not change.");
  }
  if (run.entry.module->automatic_optimization() && config.optimizers().size() > 1) {
    throw ConfigError("configure_optimizers returned " + count_of(config.optimizers().size(), "optimizer") +
                      ", and automatic optimization steps one. Call set_automatic_optimization(false) in the "
                      "module's constructor and step them in training_step.");
  }
  if (!run.entry.module->automatic_optimization()) {
    auto refuse = [](const char* option, const std::string& value, const char* instead = "Do it in training_step") {
      throw ConfigError(std::string("TrainerOptions.") + option + ": " + value +
                        " has no meaning with manual optimization. " + instead + ", and leave the option unset.");
    };
    if (run.fit.accumulate_grad_batches > 1)
      refuse("accumulate_grad_batches", std::to_string(run.fit.accumulate_grad_batches));
    if (run.fit.effective_batch_size > 0) {
      refuse("accumulate_grad_batches", "effective_batch_size " + std::to_string(run.fit.effective_batch_size));
    }
    if (run.plan.micro_batch_size != 0) {
      const int64_t size = run.plan.micro_batch_size;
      refuse("micro_batch_size", size == kAutoMicroBatch ? "auto" : std::to_string(size));
    }
    if (run.plan.gradient_clip_val > 0) {
      refuse("gradient_clip_val", number_text(run.plan.gradient_clip_val),
             "Call clip_gradients(optimizer(i), …) in training_step before its step()");
    }
    const bool skips = run.fit.nonfinite_loss == NonFiniteLoss::skip;
    if (skips || run.fit.nonfinite_loss == NonFiniteLoss::rollback)
      refuse("nonfinite_loss", skips ? "skip" : "rollback");
  }
  if (run.entry.module->automatic_optimization() && run.fit.accumulate_grad_batches > 1 &&
      !config.optimizers().empty() && config.optimizers()[0]->needs_closure()) {
    throw ConfigError("TrainerOptions.accumulate_grad_batches: " + std::to_string(run.fit.accumulate_grad_batches) +
                      " is not possible with " + config.optimizers()[0]->name() +
                      ", which evaluates its batch several times. Use 1 and a larger batch.");
  }
  for (const auto& optimizer : config.optimizers()) {
    if (!run.strategy->is_sharded() || !needs_all_weights(*optimizer)) continue;
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() +
                      " gives each rank a part of the weights, and " + optimizer->name() +
                      " needs all of them in one step. Use ddp, or another optimizer.");
  }
  check_scaling(*run.precision, config.optimizers());
  const ConfigNode numbers = configured_numbers(config);
  scale_learning_rates(run, config);
  run.fit.optimizers.clear();
  for (const auto& optimizer : config.optimizers()) run.fit.optimizers.emplace_back(run.trainer, optimizer);
  run.fit.schedulers = config.schedulers();
  attach_schedulers(run);
  run.fit.configured = configured_training(run, numbers);
  run.fit.micro_batching = run.plan.micro_batch_size != 0 ? std::make_shared<MicroBatching>(run) : nullptr;
}

}  // namespace levin
