#include "levin/trainer/step/pass.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/precision/grad_scaler.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/late_check.h"
#include "levin/trainer/step/loss_shapes.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/module_replicas.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/step_share.h"
#include "levin/trainer/step/unregistered_leaves.h"

namespace levin {

namespace {

void refuse_weight(const Optimizer& optimizer) {
  throw Error("set_loss_weight: " + optimizer.name() +
              " evaluates one batch several times for an update, and the batch has nothing beside it to be weighed "
              "against. Drop the call, or use another optimizer.");
}

at::Tensor scaled(Run& run, const at::Tensor& loss) {
  GradScaler* scaler = run.precision->scaler();
  return scaler == nullptr || !loss.defined() ? loss : scaler->scale(loss);
}

// On the device: what the host says, and whether a loss of the window is not finite, which the device finds out.
at::Tensor said_on_device(const Run& run, const RankNotes& own) {
  const at::NoGradGuard no_grad;
  const auto number = at::TensorOptions(at::kFloat).device(run.strategy->device());
  at::Tensor said = at::zeros({static_cast<int64_t>(kRankNotes)}, number);
  if (!own.empty()) said.copy_(notes_tensor(own));
  const at::Tensor& losses = run.fit.epoch.window.unread_loss;
  if (losses.defined()) mark_if_not_finite(said.select(0, static_cast<int64_t>(RankNote::nonfinite_loss)), losses);
  return said;
}

// The notes of a recorded step: whether the window's losses are finite, which it finds itself, and those of the host.
// On a device those are heard otherwise (agree_on_replay).
at::Tensor said_in_step(const Run& run, bool sync) {
  if (run.strategy->has_notes_on_device()) return sync ? said_on_device(run, {}) : at::Tensor();
  const at::NoGradGuard no_grad;
  const at::Tensor& said = run.fit.recording->said;
  const at::Tensor& losses = run.fit.epoch.window.unread_loss;
  if (!losses.defined() || !said.defined()) return said;
  static_assert(static_cast<size_t>(RankNote::nonfinite_loss) == 0);
  return at::cat({at::isfinite(losses).logical_not().to(said.scalar_type()).reshape({1}), said.slice(0, 1)});
}

// Whether ranks say it there. A recorded step has its own way.
bool says_on_device(const Run& run) {
  return run.has_peers() && run.strategy->has_notes_on_device() && run.fit.recording == nullptr;
}

// `loss`: undefined on a rank that has none. What is said stays on the device until LateCheck reads it, if there is
// one.
void run_backward_on_device(Run& run, const at::Tensor& loss, bool sync) {
  const at::Tensor own = sync ? said_on_device(run, take_notes(run.entry, run.fit, /*sync=*/true)) : at::Tensor();
  const at::Tensor heard = run.strategy->backward_recorded(scaled(run, loss), sync, own);
  if (sync) hear_device(run, heard);
}

// Where they were already taken for a recording, because it runs this step too.
RankNotes own_notes(Run& run, bool sync) {
  const StepNotes* recording = run.fit.recording;
  if (recording != nullptr && recording->said.defined()) return sync ? notes_of(recording->said) : RankNotes();
  return take_notes(run.entry, run.fit, sync);
}

// training_step has returned, and its hook has ended; the mistake is there.
void check_result(Run& run, const at::Tensor& loss) {
  try {
    check_loss(loss);
  } catch (const Error&) {
    run.entry.failed_hook = Hook::training_step;
    throw;
  }
}

// The part between training_step and backward.
void count(Run& run, const Pass& pass, PassLoss& result) {
  result.weight = pass.part != nullptr ? pass.part->loss_weight : take_loss_weight(run.fit);
  check_result(run, result.loss);
  if (pass.closure != nullptr && result.weight.defined()) refuse_weight(*pass.closure);
  result.loss = weigh(run, result.loss, result.weight, pass.parts);
  const bool counts = !pass.judge || pass.judge(result.loss);
  if (pass.opens_window) zero_gradients(run);
  agree_on_weights(run, pass.sync);
  if (result.loss.defined() && counts) result.counted = counted_loss(run.fit, result.loss, result.weight, pass.share);
}

}  // namespace

void check_loss(const at::Tensor& loss) {
  if (!loss.defined()) return;
  if (loss.numel() != 1) {
    throw Error("training_step: the loss must be one number, got " + count_of(loss.numel(), "element") +
                ". Reduce it, e.g. loss.mean().");
  }
  if (!loss.requires_grad()) {
    throw Error(
        "training_step: the loss has no gradient. Compute it from the module's parameters, without detach() or "
        "NoGradGuard; to train without gradients use set_automatic_optimization(false).");
  }
}

at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx) {
  run.entry.time_split.enter(StepPart::forward);
  (void)take_loss_weight(run.fit);                                                       // of a step that failed
  if (!run.entry.outputs.empty() && this_share() == nullptr) run.entry.outputs.clear();  // of a closure's last call
  const ProfilerScope profile(run.profiler.get(), "training_step");
  const ForwardScope forward(*run.precision, run.strategy->device().type());
  const HookScope scope(run.entry, Hook::training_step);
  std::optional<LossShapeCheck> shapes;
  if (!std::exchange(run.fit.looked_at_loss_shapes, true)) shapes.emplace();
  const ReadLeavesScope leaves(run);
  at::Tensor loss = run_step(run, batch, ModuleReplicas::Result::loss,
                             [&](LightningModule& m, const Batch& b) { return m.training_step(b, batch_idx); });
  if (run.entry.recomputation) run.entry.recomputation->check_called();
  return loss;
}

void zero_gradients(Run& run) {
  run.entry.time_split.enter(StepPart::optimizer);
  for (auto& wrapped : run.fit.optimizers) {
    Optimizer& optimizer = wrapped.optimizer();
    call_hook(
        run.entry, Hook::on_before_zero_grad,
        [&](Callback& callback) { callback.on_before_zero_grad(run.trainer, *run.entry.module, optimizer); },
        [&](LightningModule& module) { module.on_before_zero_grad(optimizer); });
    run.entry.module->optimizer_zero_grad(optimizer);
  }
}

void run_backward(Run& run, const at::Tensor& loss, bool sync, bool has_hooks) {
  if (has_hooks) {
    run.entry.time_split.enter(StepPart::callbacks);
    call_hook(
        run.entry, Hook::on_before_backward,
        [&](Callback& callback) { callback.on_before_backward(run.trainer, *run.entry.module, loss); },
        [&](LightningModule& module) { module.on_before_backward(loss); });
  }
  note_leaves(run, loss);
  run.entry.time_split.enter(StepPart::backward);
  {
    const ProfilerScope profile(run.profiler.get(), "backward");
    const HookScope scope(run.entry, Hook::backward);
    if (run.fit.recording != nullptr && run.has_peers()) {
      run.fit.recording->heard = run.strategy->backward_recorded(scaled(run, loss), sync, said_in_step(run, sync));
    } else if (says_on_device(run)) {
      run_backward_on_device(run, loss, sync);
    } else {
      hear(run.entry, run.fit, run.strategy->backward(scaled(run, loss), sync, own_notes(run, sync)));
    }
  }
  if (has_hooks) {
    run.entry.time_split.enter(StepPart::callbacks);
    call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
  }
}

void run_backward_without_loss(Run& run, bool sync) {
  if (!run.has_peers() || !(sync || run.strategy->has_sharded_weights())) return;
  run.entry.time_split.enter(StepPart::backward);
  if (says_on_device(run)) return run_backward_on_device(run, {}, sync);
  hear(run.entry, run.fit, run.strategy->backward_without_loss(sync, own_notes(run, sync)));
}

PassLoss run_pass(Run& run, const Pass& pass) {
  PassLoss result;
  if (run.has_peers()) run.strategy->before_forward(pass.sync);
  if (pass.batch != nullptr) {
    std::optional<ShareScope> part;
    if (pass.part != nullptr) part.emplace(*pass.part);
    result.loss = run_training_step(run, *pass.batch, pass.batch_idx);
  }
  count(run, pass, result);
  if (result.counted.defined()) {
    run_backward(run, result.counted, pass.sync, pass.has_hooks);
  } else {
    run_backward_without_loss(run, pass.sync);  // the others wait for this rank's gradients
  }
  return result;
}

at::Tensor begin_piped_pass(Run& run, const Pass& pass, PassLoss& result) {
  const ShareScope part(*pass.part);
  {
    const ForwardScope forward(*run.precision, run.strategy->device().type());
    result.loss = run.entry.module->training_step(*pass.batch, pass.batch_idx);
  }
  count(run, pass, result);
  if (result.counted.defined()) note_leaves(run, result.counted);
  return scaled(run, result.counted);
}

}  // namespace levin
