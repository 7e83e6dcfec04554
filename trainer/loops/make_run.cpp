#include "levin/trainer/loops/make_run.h"

#include <algorithm>

#include "levin/core/device_work.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/quiet_logger.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/replaces_default.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/use_device.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

std::vector<std::shared_ptr<Logger>> make_loggers(TrainerOptions& options, const RunPlan& plan, int64_t rank) {
  std::vector<std::shared_ptr<Logger>> loggers;
  if (!options.logger.enabled || !plan.logging || plan.fast_dev_run) return loggers;
  if (rank != 0) {
    loggers.resize(std::max<size_t>(1, options.logger.loggers.size()));
    for (auto& logger : loggers) logger = std::make_shared<QuietLogger>();
    return loggers;
  }
  int64_t index = 0;
  for (auto& logger : options.logger.loggers) {
    loggers.push_back(logger.object("trainer.logger[" + std::to_string(index++) + "]"));
  }
  if (options.logger.loggers.empty()) loggers.push_back(std::make_shared<CSVLogger>());
  return loggers;
}

// Lightning: the same fallback and warning. It is for run files that also run on a GPU; to try float16 with loss
// scaling on a CPU, name the class.
std::shared_ptr<Precision> make_precision(TrainerOptions& options, const RunPlan& plan) {
  if (options.precision.empty()) options.precision = "32-true";
  if (!falls_back_to_bfloat16(options, plan)) return options.precision.object("TrainerOptions.precision");
  Console::instance().warn(
      "TrainerOptions.precision: 16-mixed is for GPUs; on a CPU bf16-mixed is used. For float16 with loss scaling on a "
      "CPU write {class_path: MixedPrecision, init_args: {dtype: float16}}.");
  return std::make_shared<Bfloat16Mixed>();
}

// The defaults are looked up by name, so that trainer/ need not include callbacks/.
void add_default_callbacks(std::vector<std::shared_ptr<Callback>>& callbacks, const TrainerOptions& options,
                           const RunPlan& plan) {
  const auto& registry = Registry<Callback>::instance();
  auto has = [&](const std::string& key) {
    for (const auto& callback : callbacks) {
      const auto* replacement = dynamic_cast<const ReplacesDefault*>(callback.get());
      if (replacement != nullptr && replacement->default_for() == key) return true;
    }
    return false;
  };
  auto add = [&](const std::string& name) { callbacks.push_back(registry.make(ClassSpec(name, {}), name)); };
  if (options.max_time) {
    ConfigNode args = ConfigNode::map();
    args.set("duration", ValueType<Seconds>::write(*options.max_time));
    callbacks.push_back(registry.make(ClassSpec{"Timer", args, {}}, "TrainerOptions.max_time"));
  }
  if (plan.model_summary && !has("summary")) add("ModelSummary");
  if (plan.progress_bar && !has("progress_bar")) add("ProgressBar");
  if (plan.checkpointing && !plan.fast_dev_run && checkpoint_callbacks(callbacks).empty()) add("ModelCheckpoint");
}

std::vector<std::shared_ptr<Callback>> make_callbacks(TrainerOptions& options, const RunPlan& plan) {
  std::vector<std::shared_ptr<Callback>> callbacks;
  int64_t index = 0;
  for (auto& callback : options.callbacks) {
    callbacks.push_back(callback.object("trainer.callbacks[" + std::to_string(index++) + "]"));
  }
  if (!checkpoint_callbacks(callbacks).empty() && !options.enable_checkpointing.value_or(true)) {
    throw ConfigError(
        "TrainerOptions.enable_checkpointing: false, but a checkpoint callback was given. Drop one of the two.");
  }
  add_default_callbacks(callbacks, options, plan);
  return callbacks;
}

}  // namespace

std::unique_ptr<Run> make_run(Trainer& owner, TrainerOptions given) {
  log::read_environment();
  RunPlan plan = resolve_plan(given);
  auto made = std::make_unique<Run>(owner, std::move(given), std::move(plan));
  Run& run = *made;
  run.precision = make_precision(run.options, run.plan);
  const bool by_itself = run.options.strategy.empty() || run.options.strategy.is_name("auto");
  run.strategy = (by_itself ? Component<Strategy>(run.plan.strategy) : run.options.strategy).object("trainer.strategy");
  if (run.strategy->placement().takes_several_devices()) run.strategy->placement().use_slots(run.plan.slots);
  start_ranks(run);
  if (run.strategy->ranks().rank() == 0) {
    const int64_t ranks = run.strategy->ranks().world_size();
    for (const auto& idle : idle_options(run.options, run.plan, ranks, launched_by_levin())) {
      Console::instance().warn(idle);
    }
  }
  use_device(run);
  run.copier = run.strategy->placement().make_copier();
  run.checkpoint_writer.set_writes(run.strategy->ranks().rank() == 0);
  run.profiler = run.options.profiler.object("trainer.profiler");
  run.loggers = make_loggers(run.options, run.plan, run.strategy->ranks().rank());
  run.trainer_callbacks = make_callbacks(run.options, run.plan);
  run.set_accumulation(run.plan.accumulate_grad_batches);
  return made;
}

}  // namespace levin
