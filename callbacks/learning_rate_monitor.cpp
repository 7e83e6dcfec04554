#include "levin/callbacks/learning_rate_monitor.h"

#include <map>

#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

LearningRateMonitor::LearningRateMonitor(LearningRateMonitorOptions options)
    : options_(checked(std::move(options), "LearningRateMonitorOptions")) {}

void LearningRateMonitor::on_train_start(Trainer& trainer, LightningModule&) {
  watched_.clear();
  last_step_ = -1;
  if (trainer.loggers().empty()) {
    if (trainer.plan().fast_dev_run) return;
    throw ConfigError(
        "LearningRateMonitor: the trainer has no logger to write to. Set TrainerOptions.logger, or drop the "
        "callback.");
  }
  std::vector<bool> scheduled(trainer.optimizers().size(), false);
  std::map<std::string, int> seen;
  auto watch = [&](size_t index, std::string name, std::optional<bool> by_step) {
    if (name.empty()) name = "lr-" + trainer.optimizers()[index].optimizer().name();
    if (const int count = seen[name]++; count > 0) name += "-" + std::to_string(count);
    watched_.push_back({index, name, by_step});
  };
  for (const auto& schedule : trainer.lr_schedulers()) {
    if (scheduled[schedule.optimizer_index]) continue;  // one optimizer has one learning rate
    scheduled[schedule.optimizer_index] = true;
    watch(schedule.optimizer_index, schedule.options.name, schedule.options.interval == Interval::step);
  }
  for (size_t i = 0; i < scheduled.size(); ++i) {
    if (!scheduled[i]) watch(i, "", std::nullopt);
  }
}

void LearningRateMonitor::on_train_epoch_start(Trainer& trainer, LightningModule&) {
  if (options_.logging_interval != LoggingInterval::step) write(trainer, false);
}

void LearningRateMonitor::on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) {
  if (options_.logging_interval == LoggingInterval::epoch) return;
  const int64_t step = trainer.logging_step();
  if (!trainer.plan().is_logged_step(step) || step == last_step_) return;
  last_step_ = step;
  write(trainer, true);
}

// The rate does not change without a scheduler: with an unset interval once per epoch suffices.
bool LearningRateMonitor::wants(const Watched& watched, bool at_step) const {
  if (options_.logging_interval) return true;
  return watched.by_step.value_or(false) == at_step;
}

void LearningRateMonitor::write(Trainer& trainer, bool at_step) const {
  Metrics row;
  for (const Watched& watched : watched_) {
    if (!wants(watched, at_step)) continue;
    const auto& groups = trainer.optimizers()[watched.optimizer].optimizer().groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string name = watched.name + (groups.size() > 1 ? "/pg" + std::to_string(i + 1) : "");
      row[name] = groups[i].lr;
      if (options_.log_momentum && groups[i].has_momentum) row[name + "-momentum"] = groups[i].momentum;
      if (options_.log_weight_decay && groups[i].has_weight_decay) row[name + "-weight_decay"] = groups[i].weight_decay;
    }
  }
  if (!row.empty()) trainer.log_now(row, trainer.logging_step());
}

}  // namespace levin
