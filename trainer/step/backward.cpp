#include "levin/trainer/step/backward.h"

#include "levin/precision/grad_scaler.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/module_replicas.h"

namespace levin {

at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx) {
  run.time_split.enter(StepPart::forward);
  (void)take_loss_weight(run);  // of a step that failed
  const ProfilerScope profile(run.profiler.get(), "training_step");
  const ForwardScope forward(*run.precision, run.strategy->device().type());
  const HookScope scope(run, Hook::training_step);
  at::Tensor loss = run_step(run, batch, ModuleReplicas::Result::loss,
                             [&](LightningModule& m, const Batch& b) { return m.training_step(b, batch_idx); });
  if (run.recomputation) run.recomputation->check_called();
  return loss;
}

void zero_gradients(Run& run) {
  run.time_split.enter(StepPart::optimizer);
  for (auto& wrapped : run.optimizers) {
    Optimizer& optimizer = wrapped.optimizer();
    call_hook(
        run, Hook::on_before_zero_grad,
        [&](Callback& callback) { callback.on_before_zero_grad(run.trainer, *run.module, optimizer); },
        [&](LightningModule& module) { module.on_before_zero_grad(optimizer); });
    run.module->optimizer_zero_grad(optimizer);
  }
}

void check_loss(const at::Tensor& loss) {
  if (!loss.defined()) return;
  if (loss.numel() != 1) {
    throw Error("training_step: the loss must be one number, got " + std::to_string(loss.numel()) +
                " elements. Reduce it, e.g. loss.mean().");
  }
  if (!loss.requires_grad()) {
    throw Error(
        "training_step: the loss has no gradient. Compute it from the module's parameters, without detach() or "
        "NoGradGuard; to train without gradients use set_automatic_optimization(false).");
  }
}

void run_backward(Run& run, const at::Tensor& loss, bool sync) {
  run.time_split.enter(StepPart::callbacks);
  call_hook(
      run, Hook::on_before_backward,
      [&](Callback& callback) { callback.on_before_backward(run.trainer, *run.module, loss); },
      [&](LightningModule& module) { module.on_before_backward(loss); });
  run.time_split.enter(StepPart::backward);
  {
    const ProfilerScope profile(run.profiler.get(), "backward");
    const HookScope scope(run, Hook::backward);
    GradScaler* scaler = run.precision->scaler();
    if (sync) send_notes(run);
    run.strategy->backward(scaler == nullptr ? loss : scaler->scale(loss), sync);
    if (sync) hear_notes(run);
  }
  run.time_split.enter(StepPart::callbacks);
  call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
}

}  // namespace levin
