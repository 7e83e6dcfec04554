#include "levin/trainer/lightning_optimizer.h"

#include <utility>

#include "levin/core/options/error.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/step/closure_step.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/update.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

void LightningOptimizer::step(const Optimizer::Closure& closure) {
  StepCore& core = *core_;
  if (core.module_is_gone) {
    throw Error(
        optimizer_->name() +
        ": step() calls hooks of its module, which was destroyed, or the trainer has run a different module since. "
        "Call it while the trainer runs that module, or call optimizer().step(), which calls no hooks.");
  }
  if (closure) return step_with(closure);
  core.time_split.enter(StepPart::optimizer);
  unscale_gradients();
  const bool scales = core.precision.scaler() != nullptr;
  const at::Tensor found =
      scales ? std::exchange(found_inf_, at::Tensor()) : core.verdict->nonfinite_gradients(*optimizer_);
  const bool overflow = core.verdict->decide(found) == WindowResult::overflow;
  core.batch_overflowed = core.batch_overflowed.value_or(false) || overflow;
  stepped_in_batch_ = true;
  if (overflow) {
    ++core.counters.skipped_steps;
  } else if (before_update(core, *optimizer_)) {
    step_optimizer(core, [&] { optimizer_->step(); });
    ++core.counters.global_step;
  }
  core.time_split.enter(StepPart::forward);  // the rest of training_step
}

void LightningOptimizer::step_with(const Optimizer::Closure& closure) {
  StepCore& core = *core_;
  if (core.precision.scaler() != nullptr) {
    throw Error(optimizer_->name() + ": step(closure) is not possible with " + core.precision.name() +
                ", which has to read the gradients between the closure and the update. Call manual_backward and "
                "then step(), or use bf16-mixed.");
  }
  optimizer_->step([&] {
    at::Tensor loss = closure();
    (void)core.verdict->decide(core.verdict->nonfinite_gradients(*optimizer_));
    (void)before_update(core, *optimizer_);  // throws: nothing is skipped in manual optimization
    return loss_of_ranks(core.strategy.ranks(), loss);
  });
  core.time_split.enter(StepPart::forward);
  ++core.counters.global_step;
}

void LightningOptimizer::zero_grad() {
  optimizer_->zero_grad();
  found_inf_ = at::Tensor();
}

void LightningOptimizer::unscale_gradients() {
  GradScaler* scaler = core_->precision.scaler();
  if (scaler != nullptr && !found_inf_.defined()) found_inf_ = scaler->unscale_(optimizer_->parameters());
}

bool LightningOptimizer::end_batch() {
  return std::exchange(stepped_in_batch_, false) || found_inf_.defined();
}

}  // namespace levin
