#include "levin/trainer/loops/fit_warnings.h"

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

void warn_of_unlogged_epochs(const Run& run) {
  const int64_t every = run.plan.log_every_n_steps;
  const int64_t batches = run.fit.train.num_batches[0];
  if (run.loggers.empty() || run.plan.fast_dev_run || batches == kUnlimited) return;
  const int64_t steps = windows_in(batches, run.fit.accumulate_grad_batches);
  if (steps >= every) return;
  Console::instance().warn("TrainerOptions.log_every_n_steps: " + std::to_string(every) + " is more than the " +
                           count_of(steps, "step") + " of an epoch: not every epoch writes its step metrics, and a " +
                           "shorter run writes none. Set it to " + std::to_string(steps) + " or less.");
}

void warn_of_missing_steps(const Run& run) {
  const Epoch& epoch = run.fit.epoch;
  if (run.fit.optimizers.empty() || epoch.next_batch == 0 || run.strategy->rank() != 0) return;
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
