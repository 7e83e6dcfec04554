#include "levin/trainer/step/lr_schedulers.h"

#include "levin/core/console.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

namespace {

constexpr int64_t kAnyLength = 1'000'000'000;

// Unset for a scheduler that a callback has put in the place of the configured one.
Interval interval_of(const LRSchedulerConfig& config) {
  return config.options.interval.value_or(config.scheduler->counts_steps() ? Interval::step : Interval::epoch);
}

// Frequency counts optimizer steps within the epoch, or epochs. Lightning tests the batch index, so accumulation can
// starve a scheduler; here optimizer steps are counted, because a step interval means steps.
bool is_due(const Run& run, const LRSchedulerConfig& config, Interval interval) {
  if (interval_of(config) != interval) return false;
  const int64_t count = interval == Interval::step ? run.fit.epoch.steps : run.progress.epoch + 1;
  return count % config.options.frequency == 0;
}

// The metric's value if it was measured since the scheduler has used it last. Lightning: any value that there is, so
// that epochs and steps without a validation count as ones without improvement, and an error if there is none yet.
std::optional<double> new_value(Run& run, size_t index) {
  const LRSchedulerConfig& config = run.fit.schedulers[index];
  const auto measured = measured_at(run.trainer, config.options.monitor);
  if (measured) {
    auto& used = run.fit.metrics_used;
    used.resize(std::max(used.size(), index + 1), -1);
    if (std::exchange(used[index], *measured) == *measured) return std::nullopt;
    return run.entry.callback_metrics.at(config.options.monitor);
  }
  if (may_still_be_measured(run.trainer)) return std::nullopt;
  const std::string what = missing_metric_text(run.trainer, config.scheduler->name(), config.options.monitor);
  if (config.options.strict) throw Error(what + " Log it, set .monitor, or set .strict to false.");
  Console::instance().warn(what + " The learning rate stays as it is.");
  return std::nullopt;
}

// How often the entire fit, which trains something, steps a scheduler; kUnlimited if that is not known.
int64_t scheduled_steps(Run& run, const LRSchedulerConfig& config) {
  const Interval interval = interval_of(config);
  const int64_t steps = estimated_stepping_batches(run);
  const int64_t batches = num_training_batches(run.fit);
  const int64_t every = config.options.frequency;
  if (batches == kUnlimited) {
    const int64_t count = interval == Interval::step ? steps : run.plan.max_epochs;
    return count == kUnlimited ? kUnlimited : count / every;
  }
  if (steps == kUnlimited) return kUnlimited;
  int64_t count = 0;
  int64_t left = steps;
  if (accumulation_schedule(run) == nullptr) {  // every epoch is the same
    const int64_t an_epoch = windows_in(batches, accumulated_batches(run, 0));
    if (interval == Interval::epoch) return windows_in(steps, an_epoch) / every;
    return steps / an_epoch * (an_epoch / every) + steps % an_epoch / every;
  }
  for (int64_t epoch = 0; left > 0; ++epoch) {
    const int64_t an_epoch = std::min(left, windows_in(batches, accumulated_batches(run, epoch)));
    count += interval == Interval::step ? an_epoch / every : ((epoch + 1) % every == 0 ? 1 : 0);
    left -= an_epoch;
  }
  return count;
}

void fill_total_steps(Run& run, size_t index) {
  LRScheduler& scheduler = *run.fit.schedulers[index].scheduler;
  if (!scheduler.wants_total_steps() || !run.entry.module->automatic_optimization()) return;
  const bool trains_nothing = estimated_stepping_batches(run) == 0 || num_training_batches(run.fit) == 0;
  if (trains_nothing) return scheduler.fill_total_steps(kAnyLength);
  const int64_t steps = scheduled_steps(run, run.fit.schedulers[index]);
  if (steps == kUnlimited) {
    throw ConfigError(scheduler.name() +
                      ".total_steps: it is unset, and the length of the fit is not known either. Set total_steps, or "
                      "TrainerOptions.max_steps, or max_epochs with a training loader of known length.");
  }
  if (steps <= 0) return;
  scheduler.fill_total_steps(steps);
  run.fit.total_steps[index] = steps;
}

}  // namespace

void attach_schedulers(Run& run) {
  run.fit.total_steps.assign(run.fit.schedulers.size(), 0);
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    const LRSchedulerConfig& config = run.fit.schedulers[i];
    if (config.scheduler->attached()) continue;
    fill_total_steps(run, i);
    config.scheduler->attach(run.fit.optimizers[config.optimizer_index].optimizer());
  }
}

void check_monitors(Run& run) {
  for (const auto& config : run.fit.schedulers) {
    if (!config.scheduler->wants_metric()) continue;
    const std::string problem = missed_by_sanity_check(run.trainer, config.scheduler->name(), config.options.monitor);
    if (!problem.empty() && config.options.strict)
      throw ConfigError(problem + " Set .monitor to a name that is logged.");
  }
}

void step_schedulers(Run& run, Interval interval, bool plateau) {
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    const LRSchedulerConfig& config = run.fit.schedulers[i];
    if (config.scheduler->wants_metric() != plateau || !is_due(run, config, interval)) continue;
    const HookScope scope(run.entry, Hook::lr_scheduler_step);
    std::optional<double> metric;
    if (plateau) {
      metric = new_value(run, i);
      if (!metric) continue;
    }
    run.entry.module->lr_scheduler_step(*config.scheduler, metric);
  }
}

}  // namespace levin
