#include "levin/callbacks/gradient_accumulation_scheduler.h"

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

GradientAccumulationScheduler::GradientAccumulationScheduler(GradientAccumulationSchedulerOptions options)
    : options_(checked(std::move(options), "GradientAccumulationSchedulerOptions")) {}

void GradientAccumulationScheduler::on_train_start(Trainer& trainer, LightningModule& module) {
  if (!module.automatic_optimization()) {
    throw ConfigError(
        "GradientAccumulationScheduler: it has no meaning with manual optimization. Accumulate in "
        "training_step, and drop the callback.");
  }
  if (trainer.plan().effective_batch_size > 0) {
    throw ConfigError("GradientAccumulationScheduler: TrainerOptions.accumulate_grad_batches.effective_batch_size is " +
                      std::to_string(trainer.plan().effective_batch_size) +
                      ", and both cannot decide. Drop one of the two.");
  }
  if (trainer.plan().accumulate_grad_batches != 1) {
    throw ConfigError("GradientAccumulationScheduler: TrainerOptions.accumulate_grad_batches is " +
                      std::to_string(trainer.plan().accumulate_grad_batches) +
                      ", and both cannot decide. Leave it at 1 and write {0: " +
                      std::to_string(trainer.plan().accumulate_grad_batches) + "} into .scheduling.");
  }
  // An epoch that a restart continues has no on_train_epoch_start.
  trainer.set_accumulate_grad_batches(factor(trainer.current_epoch()));
}

void GradientAccumulationScheduler::on_train_epoch_start(Trainer& trainer, LightningModule&) {
  trainer.set_accumulate_grad_batches(factor(trainer.current_epoch()));
}

int64_t GradientAccumulationScheduler::factor(int64_t epoch) const {
  const auto next = options_.scheduling.upper_bound(epoch);
  return next == options_.scheduling.begin() ? 1 : std::prev(next)->second;
}

}  // namespace levin
