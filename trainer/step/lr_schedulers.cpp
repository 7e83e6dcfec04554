#include "levin/trainer/step/lr_schedulers.h"

#include "levin/core/console.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

namespace {

constexpr int64_t kAnyLength = 1'000'000'000;

// Frequency counts optimizer steps within the epoch, or epochs. Lightning tests the batch index, so accumulation can
// starve a scheduler; here optimizer steps are counted, because a step interval means steps.
bool is_due(const Run& run, const LRSchedulerOptions& options, Interval interval) {
  if (options.interval != interval) return false;
  const int64_t count = interval == Interval::step ? run.fit.epoch.steps : run.progress.epoch + 1;
  return count % options.frequency == 0;
}

std::optional<double> monitored_value(Run& run, const LRSchedulerConfig& config) {
  run.refresh_callback_metrics();
  const auto found = run.entry.callback_metrics.find(config.options.monitor);
  if (found != run.entry.callback_metrics.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : run.entry.callback_metrics) names.push_back(name);
  const std::string what = config.scheduler->name() + ": metric \"" + config.options.monitor +
                           "\" was never logged by epoch " + std::to_string(run.progress.epoch) +
                           ". Logged: " + join(names) + "." + did_you_mean(config.options.monitor, names);
  if (config.options.strict) throw Error(what + " Log it, set .monitor, or set .strict to false.");
  Console::instance().warn(what + " The learning rate stays as it is.");
  return std::nullopt;
}

// How often the entire fit steps a scheduler; kUnlimited if that is not known.
int64_t scheduled_steps(Run& run, const LRSchedulerOptions& options) {
  const int64_t steps = estimated_stepping_batches(run);
  const int64_t batches = num_training_batches(run.fit);
  const int64_t every = options.frequency;
  if (batches == kUnlimited || batches == 0) {
    const int64_t count = options.interval == Interval::step ? steps : run.plan.max_epochs;
    return count == kUnlimited ? kUnlimited : count / every;
  }
  if (steps == kUnlimited) return kUnlimited;
  const int64_t an_epoch = windows_in(batches, run.progress.accumulate);
  if (options.interval == Interval::epoch) return windows_in(steps, an_epoch) / every;
  return steps / an_epoch * (an_epoch / every) + steps % an_epoch / every;
}

void fill_total_steps(Run& run, LRScheduler& scheduler, const LRSchedulerOptions& options) {
  if (!scheduler.wants_total_steps() || !run.entry.module->automatic_optimization()) return;
  const int64_t steps = scheduled_steps(run, options);
  if (steps == kUnlimited) {
    throw ConfigError(scheduler.name() +
                      ".total_steps: it is unset, and the length of the fit is not known either. Set total_steps, or "
                      "TrainerOptions.max_steps, or max_epochs with a training loader of known length.");
  }
  if (steps > 0) scheduler.fill_total_steps(steps);
  if (estimated_stepping_batches(run) == 0) scheduler.fill_total_steps(kAnyLength);  // nothing is trained
}

}  // namespace

void attach_schedulers(Run& run) {
  for (auto& config : run.fit.schedulers) {
    if (config.scheduler->attached()) continue;
    fill_total_steps(run, *config.scheduler, config.options);
    config.scheduler->attach(run.fit.optimizers[config.optimizer_index].optimizer());
  }
}

void step_schedulers(Run& run, Interval interval, bool plateau) {
  for (auto& config : run.fit.schedulers) {
    if (config.scheduler->wants_metric() != plateau || !is_due(run, config.options, interval)) continue;
    const HookScope scope(run.entry, Hook::lr_scheduler_step);
    std::optional<double> metric;
    if (plateau) {
      metric = monitored_value(run, config);
      if (!metric) continue;
    }
    run.entry.module->lr_scheduler_step(*config.scheduler, metric);
  }
}

}  // namespace levin
