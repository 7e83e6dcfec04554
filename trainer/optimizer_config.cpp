#include "levin/trainer/optimizer_config.h"

namespace levin {

OptimizerConfig& OptimizerConfig::add_shared(std::shared_ptr<Optimizer> optimizer) {
  if (optimizer == nullptr) throw ConfigError("configure_optimizers: an optimizer is a null pointer.");
  optimizers_.push_back(std::move(optimizer));
  return *this;
}

OptimizerConfig& OptimizerConfig::schedule_shared(std::shared_ptr<LRScheduler> scheduler, LRSchedulerOptions options) {
  if (optimizers_.empty()) {
    throw ConfigError("configure_optimizers: a scheduler was given before any optimizer. Add the optimizer first.");
  }
  if (scheduler->wants_metric() && options.monitor.empty()) {
    throw ConfigError("configure_optimizers: " + scheduler->name() +
                      " needs a metric to watch. Set .monitor to a name that you log, e.g. \"val_loss\".");
  }
  options = checked(std::move(options), "LRSchedulerOptions");
  if (!options.interval) options.interval = scheduler->counts_steps() ? Interval::step : Interval::epoch;
  schedulers_.push_back({std::move(scheduler), std::move(options), optimizers_.size() - 1});
  return *this;
}

}  // namespace levin
