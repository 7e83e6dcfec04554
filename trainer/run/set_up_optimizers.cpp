#include "levin/trainer/run/set_up_optimizers.h"

#include <cmath>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/optim/averaging_optimizer.h"
#include "levin/optim/torch_optimizer.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/run/configured_training.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/lr_schedulers.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_hooks.h"
#include "levin/trainer/step/update_scope.h"

namespace levin {

namespace {

bool needs_all_weights(const Optimizer& optimizer) {
  return optimizer.needs_closure() || optimizer.updates_whole_tensors() ||
         dynamic_cast<const AveragingOptimizer*>(&optimizer) != nullptr;
}

// What the strategy tells an optimizer that sums over ranks. An optimizer may outlive the strategy.
class StrategyShards : public ParameterShards {
 public:
  explicit StrategyShards(const std::shared_ptr<Strategy>& strategy) : strategy_(strategy) {}
  [[nodiscard]] std::optional<Range> range_of(const at::Tensor& param) const override {
    const auto strategy = strategy_.lock();
    const auto range = strategy != nullptr ? strategy->sharding().shard_range(param) : std::nullopt;
    if (!range) return std::nullopt;
    return Range{range->flat_offset(), range->shape};
  }
  [[nodiscard]] at::Tensor sum_over_ranks(const at::Tensor& value) const override {
    const auto strategy = strategy_.lock();
    return strategy != nullptr ? strategy->ranks().sum_on_device(value) : value;
  }

 private:
  std::weak_ptr<Strategy> strategy_;
};

void use_shards(const Run& run, Optimizer& optimizer) {
  Sharding& sharding = run.strategy->sharding();
  optimizer.use_shards(sharding.is_sharded() ? std::make_shared<const StrategyShards>(run.strategy) : nullptr);
  if (dynamic_cast<const TorchOptimizer*>(&optimizer) != nullptr) return;  // LibTorch's: known
  const UpdateScope shards(sharding);
  optimizer.check_layouts(optimizer.state_dict());
}

}  // namespace

void set_up_optimizers(Run& run) {
  if (run.fit.effective_batch_size > 0 && !run.fit.train.loaded) load_train_loader(run);
  OptimizerConfig config = call_module(run.entry, Hook::configure_optimizers, &ModuleAccess::wanted_optimizers);
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
    if (run.fit.planned_accumulation > 1)
      refuse("accumulate_grad_batches", std::to_string(run.fit.planned_accumulation));
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
  if (run.entry.module->automatic_optimization() && run.fit.planned_accumulation > 1 && !config.optimizers().empty() &&
      config.optimizers()[0]->needs_closure()) {
    throw ConfigError("TrainerOptions.accumulate_grad_batches: " + std::to_string(run.fit.planned_accumulation) +
                      " is not possible with " + config.optimizers()[0]->name() +
                      ", which evaluates its batch several times. Use 1 and a larger batch.");
  }
  use_optimizers(run, config);
}

void use_optimizers(Run& run, const OptimizerConfig& config) {
  for (const auto& optimizer : config.optimizers()) {
    if (!run.strategy->sharding().is_sharded() || !needs_all_weights(*optimizer)) continue;
    throw ConfigError("TrainerOptions.strategy: " + run.strategy->name() +
                      " gives each rank a part of the weights, and " + optimizer->name() +
                      " needs all of them in one step. Use ddp, or another optimizer.");
  }
  for (const auto& optimizer : config.optimizers()) use_shards(run, *optimizer);
  const ConfigNode numbers = configured_numbers(config);
  scale_learning_rates(run, config);
  run.entry.engine = run.fit.engine = make_engine(run);
  run.fit.engine->use(config.optimizers());
  run.fit.schedulers = config.schedulers();
  attach_schedulers(run);
  run.fit.configured = configured_training(run, numbers);
}

namespace {

// Note [What lr_scale scales by]
// Learning rates are written for one batch of the configured data.batch_size on one device. The factor is the samples
// of one optimizer step over that: batch size (as BatchSizeFinder may have found it) times ranks times batches that are
// accumulated. So a run is the same on one device and on eight.
int64_t samples_of_step(const Run& run) {
  const int64_t batch = run.fit.train.loaders.empty() ? 0 : run.fit.train.loaders[0]->batch_size().value_or(0);
  return batch * run.strategy->ranks().mesh().data().size() * run.fit.planned_accumulation;
}

double size_ratio(const Run& run) {
  const int64_t configured = run.fit.tuning.configured_batch_size, samples = samples_of_step(run);
  return configured == 0 || samples == 0 ? 1 : static_cast<double>(samples) / static_cast<double>(configured);
}

// Goyal et al. 2017 (https://arxiv.org/abs/1706.02677): in proportion; Krizhevsky 2014
// (https://arxiv.org/abs/1404.5997): with the square root, which keeps the variance of the updates.
double factor_for(LrScale scale, double ratio) {
  if (scale == LrScale::linear) return ratio;
  return scale == LrScale::sqrt ? std::sqrt(ratio) : 1;
}

void print_scale(const Run& run, double ratio, double factor) {
  const int64_t ranks = run.strategy->ranks().mesh().data().size(), batches = run.fit.planned_accumulation;
  std::string parts;
  if (ranks > 1) parts += " on " + count_of(ranks, "rank");
  if (batches > 1) parts += ", " + count_of(batches, "batch", "batches") + " accumulated";
  Console::instance().print("lr_scale " + enum_name(run.fit.lr_scale) + ": an optimizer step takes " +
                            count_of(samples_of_step(run), "sample") + parts + ", " + short_number(ratio) +
                            " times the configured batch size of " +
                            std::to_string(run.fit.tuning.configured_batch_size) +
                            ": learning rates are multiplied by " + short_number(factor) + ".");
}

void refuse_own_rates(const Run& run, const OptimizerConfig& config) {
  for (const auto& scheduled : config.schedulers()) {
    const std::string name = scheduled.scheduler->name();
    if (name != "OneCycleLR" && name != "CyclicLR") continue;
    const bool scaled = run.fit.lr_scale != LrScale::none;
    throw ConfigError(
        (scaled ? "TrainerOptions.lr_scale: " : "LearningRateFinder: ") + name +
        " takes its learning rates from its own options, and not from the optimizer's. Set them for the " +
        (scaled ? "batch size, and leave lr_scale at none." : "model, and drop the callback."));
  }
}

}  // namespace

void scale_learning_rates(Run& run, const OptimizerConfig& config) {
  if (run.fit.lr_scale != LrScale::none && accumulation_schedule(run) != nullptr) {
    throw ConfigError("TrainerOptions.lr_scale: " + enum_name(run.fit.lr_scale) +
                      " has no single factor where GradientAccumulationScheduler changes the samples of a step from "
                      "epoch to epoch. Leave it at none, or set accumulate_grad_batches and drop the callback.");
  }
  if (run.fit.lr_scale != LrScale::none && !run.fit.train.loaded) load_train_loader(run);
  const double ratio = run.fit.lr_scale == LrScale::none ? 1 : size_ratio(run);
  const double scale = factor_for(run.fit.lr_scale, ratio);
  const double factor = scale * run.fit.tuning.lr_factor;
  run.fit.lr_factor = factor;
  if (factor == 1) return;
  refuse_own_rates(run, config);
  if (scale != 1) print_scale(run, ratio, scale);
  for (const auto& optimizer : config.optimizers()) {
    for (auto& group : optimizer->param_groups()) group.lr *= factor;
  }
}

}  // namespace levin
