#include "levin/trainer/loops/fit_warnings.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// Names such as val_loss, valid.loss, acc/val and Eval-F1; value_loss belongs to training.
bool names_a_validation(const std::string& metric) {
  if (metric.starts_with("val") && !metric.starts_with("valu")) return true;
  std::string word;
  for (const char c : metric + ".") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "val" || word == "valid" || word == "validation" || word == "eval" || word == "dev") return true;
    word.clear();
  }
  return false;
}

// The name, or one of the names of a metric of steps and epochs.
bool is_name_of(const std::string& metric, const std::string& logged) {
  return metric == logged || metric == logged + "_step" || metric == logged + "_epoch";
}

}  // namespace

void warn_of_unlogged_monitors(Run& run) {
  const auto expected = std::exchange(run.fit.expected_metrics, {});
  if (run.strategy->ranks().rank() != 0 || run.plan.fast_dev_run || run.progress.processed > 0) return;
  std::set<std::string> logged = run.fit.sanity_metrics.value_or(std::set<std::string>());
  for (const auto& [name, batches] : run.entry.logged_at) logged.insert(name);
  for (const auto& [name, value] : run.entry.callback_metrics) logged.insert(name);
  const std::vector<std::string> names(logged.begin(), logged.end());
  const bool knows_validation = run.fit.sanity_metrics || !run.trainer.has_validation();
  for (const auto& [who, metric] : expected) {
    if (std::any_of(names.begin(), names.end(),
                    [&metric = metric](const std::string& name) { return is_name_of(metric, name); }))
      continue;
    if (run.entry.batch_only.contains(metric)) {
      Console::instance().warn(missing_metric_text(run.trainer, who, metric));
      continue;
    }
    const std::string hint = did_you_mean(metric, names);
    if (!knows_validation && (hint.empty() || names_a_validation(metric))) continue;
    Console::instance().warn(who + ": metric \"" + metric + "\" was not logged by " +
                             (run.fit.sanity_metrics ? "the sanity check or " : "") +
                             "the first training batch. Logged: " + (names.empty() ? "nothing" : join(names)) + "." +
                             hint + " If nothing logs it later, the run ends with an error where " + who +
                             " first needs it. Set .monitor to a name that is logged.");
  }
}

void warn_of_unlogged_epochs(const Run& run) {
  const int64_t every = run.plan.log_every_n_steps;
  const int64_t batches = run.fit.train.num_batches[0];
  if (run.loggers.empty() || run.plan.fast_dev_run || batches == kUnlimited) return;
  const int64_t steps = windows_in(batches, run.fit.planned_accumulation);
  if (steps >= every) return;
  Console::instance().warn("TrainerOptions.log_every_n_steps: " + std::to_string(every) + " is more than the " +
                           count_of(steps, "step") + " of an epoch: not every epoch writes its step metrics, and a " +
                           "shorter run writes none. Set it to " + std::to_string(steps) + " or less.");
}

void warn_of_short_pass(const Run& run, int64_t batches) {
  if (run.strategy->ranks().rank() != 0) return;
  const int64_t expected = run.fit.train.num_batches[0];
  if (batches == 0) {
    return Console::instance().warn(
        "the training loader has ended before its first batch, so the epoch trains nothing. Check its data, and that "
        "start() begins a new pass.");
  }
  Console::instance().warn("the training loader has ended after " + count_of(batches, "batch", "batches") + " of the " +
                           std::to_string(expected) +
                           " that its num_batches() returned, so the epoch is shorter than schedules and progress "
                           "assume. Return the number of batches of a pass, or std::nullopt if it is not known.");
}

void warn_of_missing_steps(const Run& run) {
  const Epoch& epoch = run.fit.epoch;
  if (run.fit.optimizers().empty() || epoch.next_batch == 0 || run.strategy->ranks().rank() != 0) return;
  if (run.entry.module->automatic_optimization()) {
    if (epoch.has_loss) return;
    return Console::instance().warn(
        "no batch of the epoch had a loss, so the weights have not changed. Return the loss from training_step; an "
        "undefined tensor skips the batch.");
  }
  if (run.progress.global_step + run.progress.skipped_steps > 0) return;
  Console::instance().warn(
      "manual optimization: no optimizer was stepped in an entire epoch, so the weights have not changed. Call "
      "optimizer().step() in training_step after manual_backward(loss), or leave automatic optimization on.");
}

}  // namespace levin
