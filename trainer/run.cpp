#include "levin/trainer/run.h"

#include <algorithm>

#include "levin/core/console.h"
#include "levin/core/device_work.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/quiet_logger.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/devices.h"
#include "levin/trainer/ranks.h"
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
  if (options.logger.loggers.empty()) loggers.push_back(std::make_shared<CsvLogger>());
  return loggers;
}

// Lightning: the same fallback and warning. It is for run files that also run on a GPU; who wants float16 on a CPU, to
// try the scaling out, names the class.
std::shared_ptr<Precision> make_precision(TrainerOptions& options, const RunPlan& plan) {
  if (options.precision.empty()) options.precision = "32-true";
  if (!falls_back_to_bfloat16(options, plan)) return options.precision.object("TrainerOptions.precision");
  Console::instance().warn(
      "TrainerOptions.precision: 16-mixed is for GPUs; on a CPU bf16-mixed is used. For float16 with loss scaling on a "
      "CPU write {class_path: MixedPrecision, init_args: {dtype: float16}}.");
  return std::make_shared<Bfloat16Mixed>();
}

bool has_checkpoint_callback(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  for (const auto& callback : callbacks) {
    if (callback->is_checkpoint()) return true;
  }
  return false;
}

// The defaults are looked up by name, so that trainer/ need not include callbacks/.
void add_default_callbacks(std::vector<std::shared_ptr<Callback>>& callbacks, const TrainerOptions& options,
                           const RunPlan& plan) {
  const auto& registry = Registry<Callback>::instance();
  auto has = [&](const std::string& key) {
    for (const auto& callback : callbacks) {
      if (callback->default_for() == key) return true;
    }
    return false;
  };
  auto add = [&](const std::string& name) { callbacks.push_back(registry.make(ClassSpec{name, {}, {}}, name)); };
  if (options.max_time) {
    ConfigNode args = ConfigNode::map();
    args.set("duration", ValueType<Seconds>::write(*options.max_time));
    callbacks.push_back(registry.make(ClassSpec{"Timer", args, {}}, "TrainerOptions.max_time"));
  }
  if (plan.model_summary && !has("summary")) add("ModelSummary");
  if (plan.progress_bar && !has("progress_bar")) add("ProgressBar");
  if (plan.checkpointing && !plan.fast_dev_run && !has_checkpoint_callback(callbacks)) add("ModelCheckpoint");
}

std::vector<std::shared_ptr<Callback>> make_callbacks(TrainerOptions& options, const RunPlan& plan) {
  std::vector<std::shared_ptr<Callback>> callbacks;
  int64_t index = 0;
  for (auto& callback : options.callbacks) {
    callbacks.push_back(callback.object("trainer.callbacks[" + std::to_string(index++) + "]"));
  }
  if (has_checkpoint_callback(callbacks) && !options.enable_checkpointing.value_or(true)) {
    throw ConfigError(
        "TrainerOptions.enable_checkpointing: false, but a checkpoint callback was given. Drop one of the two.");
  }
  add_default_callbacks(callbacks, options, plan);
  return callbacks;
}

}  // namespace

Run::Run(Trainer& owner, TrainerOptions given)
    : trainer(owner), options(std::move(given)), plan(resolve_plan(options)), precision(make_precision(options, plan)) {
  const bool by_itself = options.strategy.empty() || options.strategy.is_name("auto");
  strategy = (by_itself ? Component<Strategy>(plan.strategy) : options.strategy).object("trainer.strategy");
  if (strategy->takes_several_devices()) strategy->use_slots(plan.slots);
  start_ranks(*this);
  use_device(*this);
  copier = strategy->make_copier();
  checkpoint_writer.set_writes(strategy->rank() == 0);
  profiler = options.profiler.object("trainer.profiler");
  loggers = make_loggers(options, plan, strategy->rank());
  trainer_callbacks = make_callbacks(options, plan);
  progress.accumulate = plan.accumulate_grad_batches;
}

void Run::refresh_callback_metrics() {
  if (phase == Phase::idle) return;
  for (const auto& [name, value] : store().monitored(on_step(), phase == Phase::train)) callback_metrics[name] = value;
  for (const auto& [name, value] : store().shown(on_step())) bar_metrics[name] = value;
}

void Run::write_metrics(const Metrics& metrics, std::optional<int64_t> step, bool with_epoch) {
  if (metrics.empty()) return;
  for (const auto& [name, value] : metrics) logged_metrics[name] = value;
  if (loggers.empty()) return;
  MetricList row(metrics.begin(), metrics.end());
  if (!step || with_epoch) row.emplace_back("epoch", static_cast<double>(progress.epoch));
  for (const auto& logger : loggers) logger->log_metrics(row, step.value_or(progress.windows));
}

}  // namespace levin
