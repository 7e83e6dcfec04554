#include "levin/callbacks/learning_rate_monitor.h"

#include <map>
#include <utility>

#include "levin/callbacks/monitor.h"
#include "levin/core/options/error.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

LearningRateMonitor::LearningRateMonitor(LearningRateMonitorOptions options)
    : options_(checked(std::move(options), "LearningRateMonitorOptions")) {}

void LearningRateMonitor::on_train_start(Trainer& trainer, LightningModule&) {
  if (!has_logger(trainer, "LearningRateMonitor")) return;
  if (!std::exchange(resumed_, false)) watch_schedulers(trainer);
  for (const Watched& watched : watched_) {
    if (watched.optimizer < trainer.optimizers().size()) continue;
    throw CheckpointError("LearningRateMonitor: the saved state watches optimizer " +
                          std::to_string(watched.optimizer) + ", and the run has " +
                          count_of(static_cast<int64_t>(trainer.optimizers().size()), "optimizer") +
                          ". Resume with the optimizers that the checkpoint was written with.");
  }
}

// Called once per run: a callback may replace the scheduler later, as StochasticWeightAveraging does, and the rows stay
// the same if the run is resumed after that.
void LearningRateMonitor::watch_schedulers(Trainer& trainer) {
  watched_.clear();
  last_step_ = -1;
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

State LearningRateMonitor::state_dict() const {
  State state;
  if (watched_.empty()) return state;
  std::vector<int64_t> optimizers;
  std::vector<std::string> names, intervals;
  for (const Watched& watched : watched_) {
    optimizers.push_back(static_cast<int64_t>(watched.optimizer));
    names.push_back(watched.name);
    intervals.emplace_back(!watched.by_step ? "none" : *watched.by_step ? "step" : "epoch");
  }
  state.set("optimizers", optimizers);
  state.set("names", names);
  state.set("intervals", intervals);
  state.set("last_step", last_step_);
  return state;
}

void LearningRateMonitor::load_state_dict(const State& saved) {
  const auto optimizers = saved.get<std::vector<int64_t>>("optimizers");
  const auto names = saved.get<std::vector<std::string>>("names");
  const auto intervals = saved.get<std::vector<std::string>>("intervals");
  if (names.size() != optimizers.size() || intervals.size() != optimizers.size()) {
    throw CheckpointError("LearningRateMonitor: the saved state has " + std::to_string(optimizers.size()) +
                          " optimizers, " + std::to_string(names.size()) + " names and " +
                          std::to_string(intervals.size()) + " intervals. Resume from another checkpoint.");
  }
  watched_.clear();
  for (size_t i = 0; i < names.size(); ++i) {
    std::optional<bool> by_step;
    if (intervals[i] != "none") by_step = intervals[i] == "step";
    watched_.push_back({static_cast<size_t>(optimizers[i]), names[i], by_step});  // negative: refused as too large
  }
  last_step_ = saved.get<int64_t>("last_step");
  resumed_ = true;
}

void LearningRateMonitor::on_train_epoch_start(Trainer& trainer, LightningModule&) {
  if (options_.logging_interval != LoggingInterval::step) write(trainer, false);
}

void LearningRateMonitor::on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) {
  if (options_.logging_interval == LoggingInterval::epoch) return;
  const int64_t step = trainer.logging_step();
  if (!trainer.is_logged_window() || step == last_step_) return;
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
    const auto& groups = trainer.optimizers()[watched.optimizer].optimizer().param_groups();
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
