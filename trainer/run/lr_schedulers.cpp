#include "levin/trainer/run/lr_schedulers.h"

#include "levin/core/process/console.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

namespace {

constexpr int64_t kAnyLength = 1'000'000'000;

// Frequency counts optimizer steps within the epoch, or epochs. Lightning tests the batch index, so accumulation can
// starve a scheduler; here optimizer steps are counted, because a step interval means steps.
bool is_due(const Run& run, const LRSchedulerConfig& config, Interval interval) {
  if (interval_of(config) != interval) return false;
  const int64_t count =
      interval == Interval::step ? run.progress.global_step - run.fit.epoch.first_step : run.progress.epoch + 1;
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
  Console::instance().warn(what + " The learning rate is unchanged.");
  return std::nullopt;
}

void fill_total_steps(Run& run, size_t index) {
  LRScheduler& scheduler = *run.fit.schedulers[index].scheduler;
  if (!scheduler.wants_total_steps() || !run.entry.module->automatic_optimization()) return;
  const bool trains_nothing = estimated_stepping_batches(run) == 0 || num_training_batches(run.fit) == 0;
  if (trains_nothing) return scheduler.fill_total_steps(kAnyLength);
  const LRSchedulerConfig& config = run.fit.schedulers[index];
  const int64_t steps = moves_of_fit(run, interval_of(config), config.options.frequency);
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

// Unset for a scheduler that a callback has set instead of the configured one.
Interval interval_of(const LRSchedulerConfig& config) {
  return config.options.interval.value_or(config.scheduler->counts_steps() ? Interval::step : Interval::epoch);
}

void attach_schedulers(Run& run) {
  run.fit.total_steps.assign(run.fit.schedulers.size(), 0);
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    const LRSchedulerConfig& config = run.fit.schedulers[i];
    if (config.scheduler->attached()) continue;
    fill_total_steps(run, i);
    config.scheduler->attach(run.fit.optimizers()[config.optimizer_index].optimizer());
  }
}

void expect_monitors(Run& run) {
  for (const auto& config : run.fit.schedulers) {
    if (config.scheduler->wants_metric() && config.options.strict)
      expect_metric(run.trainer, config.scheduler->name(), config.options.monitor);
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
