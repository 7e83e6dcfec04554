#include "levin/trainer/lightning_optimizer.h"

#include <utility>

#include "levin/core/error.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/step/closure_step.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/update.h"

namespace levin {

void LightningOptimizer::step(const Optimizer::Closure& closure) {
  Run& run = RunAccess::of(*trainer_);
  if (run.entry.module == nullptr) {
    throw Error(optimizer_->name() +
                ": step() was called after its module was destroyed, whose hooks it calls. Keep the module, or call "
                "optimizer().step(), which calls no hooks.");
  }
  if (closure) return step_with(closure);
  run.entry.time_split.enter(StepPart::optimizer);
  unscale_gradients();
  const bool scales = run.precision->scaler() != nullptr;
  const at::Tensor found = scales ? std::exchange(found_inf_, at::Tensor()) : found_nonfinite(run, *optimizer_);
  const bool overflow = read_window(run, found) == WindowResult::overflow;
  run.fit.batch_overflowed = run.fit.batch_overflowed.value_or(false) || overflow;
  stepped_in_batch_ = true;
  if (overflow) {
    ++run.progress.skipped_steps;
  } else if (before_update(run, *optimizer_)) {
    step_optimizer(run, [&] { optimizer_->step(); });
    count_step(run.progress, run.fit.epoch);
  }
  run.entry.time_split.enter(StepPart::forward);  // the rest of training_step
}

void LightningOptimizer::step_with(const Optimizer::Closure& closure) {
  Run& run = RunAccess::of(*trainer_);
  if (run.precision->scaler() != nullptr) {
    throw Error(optimizer_->name() + ": step(closure) is not possible with " + run.precision->name() +
                ", which has to read the gradients between the closure and the update. Call manual_backward and "
                "then step(), or use bf16-mixed.");
  }
  optimizer_->step([&] {
    at::Tensor loss = closure();
    (void)read_window(run, found_nonfinite(run, *optimizer_));
    (void)before_update(run, *optimizer_);  // throws: nothing is skipped in manual optimization
    return loss_of_ranks(*run.strategy, loss);
  });
  run.entry.time_split.enter(StepPart::forward);
  count_step(run.progress, run.fit.epoch);
}

void LightningOptimizer::zero_grad() {
  optimizer_->zero_grad();
  found_inf_ = at::Tensor();
}

void LightningOptimizer::unscale_gradients() {
  GradScaler* scaler = RunAccess::of(*trainer_).precision->scaler();
  if (scaler != nullptr && !found_inf_.defined()) found_inf_ = scaler->unscale_(optimizer_->parameters());
}

bool LightningOptimizer::end_batch() {
  return std::exchange(stepped_in_batch_, false) || found_inf_.defined();
}

}  // namespace levin
