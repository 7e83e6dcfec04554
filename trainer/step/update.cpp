#include "levin/trainer/step/update.h"

#include <ATen/ops/amax.h>

#include <utility>

#include "levin/core/rank_status.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/update_scope.h"
#include "levin/trainer/step/late_check.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

// All ranks together: a hook may differ between them.
bool spoils_gradients(Run& run, const Optimizer& optimizer) {
  if (!run.fit.acts_before_update || run.fit.nonfinite_loss == NonFiniteLoss::ignore) return false;
  const bool found = has_nonfinite_gradient(run, optimizer);
  return run.has_peers() ? run.strategy->any(found) : found;
}

}  // namespace

bool before_update(Run& run, Optimizer& optimizer) {
  run.entry.time_split.enter(StepPart::callbacks);
  call_hook(
      run.entry, Hook::on_before_optimizer_step,
      [&](Callback& callback) { callback.on_before_optimizer_step(run.trainer, *run.entry.module, optimizer); },
      [&](LightningModule& module) { module.on_before_optimizer_step(optimizer); });
  run.entry.time_split.enter(StepPart::optimizer);
  const HookScope scope(run.entry, Hook::configure_gradient_clipping);
  run.entry.module->configure_gradient_clipping(optimizer, run.plan.gradient_clip_val,
                                                run.plan.gradient_clip_algorithm);
  if (!spoils_gradients(run, optimizer)) return true;
  act_on_spoilt_gradient(run);
  return false;
}

// If the update is sharded over ranks, the optimizer sees only its rank's shards.
void step_optimizer(Run& run, c10::function_ref<void()> step) {
  UpdateScope update(*run.strategy);
  step();
  tell_memory(run);
  update.changed();
}

void count_step(Progress& progress, Epoch& epoch) {
  ++progress.global_step;
  ++epoch.steps;
}

namespace {

// What read_window takes besides the losses. Unscales the gradients if there is a scaler.
at::Tensor judged_gradients(Run& run) {
  if (run.fit.optimizers.empty()) return {};
  const Optimizer& optimizer = run.fit.optimizers[0].optimizer();  // automatic: one optimizer
  GradScaler* scaler = run.precision->scaler();
  return scaler != nullptr ? scaler->unscale_(optimizer.parameters()) : found_nonfinite(run, optimizer);
}

// Of a window that is checked late, undefined if there is nothing to judge: 1 where it must not be updated, and in a
// recorded step also if that was so before.
at::Tensor late_flag(Run& run, const at::Tensor& loss, const at::Tensor& heard) {
  LateCheck& check = *run.fit.late_check;
  at::Tensor flag;
  if (heard.defined()) {
    flag = run.fit.recording != nullptr ? check.kept_flag_of_ranks(heard) : LateCheck::flag_of_ranks(heard);
  } else if (loss.defined()) {
    flag = check.flag(loss);
  }
  if (flag.defined()) check.add_gradients(run, flag);
  return flag;
}

// See Note [What a recorded step leaves to the host] in step_graph.h: the device decides here, and the host reads
// later.
void record_update(Run& run) {
  StepNotes& notes = *run.fit.recording;
  notes.loss = std::exchange(run.fit.epoch.window.unread_loss, at::Tensor());
  if (run.fit.late_check == nullptr) {
    notes.flags = window_flags(run, notes.loss, judged_gradients(run));
  } else {
    notes.flags = late_flag(run, notes.loss, notes.heard);
    if (notes.loss.defined()) notes.loss = LateCheck::with_flag(notes.loss, notes.flags);
  }
  Optimizer& optimizer = run.fit.optimizers[0].optimizer();
  (void)before_update(run, optimizer);  // no hook acts: leaves_updates
  const HookScope scope(run.entry, Hook::optimizer_step);
  if (notes.flags.defined()) {
    optimizer.step_unless(notes.flags.dim() == 0 ? notes.flags : at::amax(notes.flags));
  } else {
    optimizer.step();
  }
}

// See Note [Late checks] in late_check.h.
void update_before_check(Run& run) {
  const at::Tensor loss = std::exchange(run.fit.epoch.window.unread_loss, at::Tensor());
  const at::Tensor heard = std::exchange(run.fit.epoch.window.heard, at::Tensor());
  at::Tensor flag;
  {
    const RankWait waiting(device_wait_text(run));
    flag = late_flag(run, loss, heard);
    if (run.fit.batches != nullptr) run.fit.batches->send_ahead();
    finish_late_check_and_hear(run);  // of the window before: the device has this one to compute meanwhile
  }
  Optimizer& optimizer = run.fit.optimizers[0].optimizer();
  (void)before_update(run, optimizer);  // no hook acts: leaves_updates
  {
    const HookScope scope(run.entry, Hook::optimizer_step);
    step_optimizer(run, [&] { flag.defined() ? optimizer.step_unless(flag) : optimizer.step(); });
  }
  if (flag.defined()) run.fit.late_check->begin(run, flag, loss, heard);
  count_window(run, WindowResult::good);
}

}  // namespace

void update(Run& run, const WindowPart& window) {
  Epoch& epoch = run.fit.epoch;
  run.entry.time_split.enter(StepPart::optimizer);
  const bool weighted = normalize_gradients(run);
  // A window cut short by the end of a loader of unknown length: its gradients were divided by the full size.
  if (!weighted && !window.size_known && epoch.window.seen < epoch.window.size) {
    multiply_gradients(run.fit, static_cast<double>(epoch.window.size) / static_cast<double>(epoch.window.seen));
  }
  const ProfilerScope profile(run.profiler.get(), "optimizer_step");
  if (run.fit.recording != nullptr) return record_update(run);
  if (run.fit.late_check != nullptr) return update_before_check(run);
  WindowResult finding = read_window(run, judged_gradients(run));
  if (finding == WindowResult::good) {
    for (auto& wrapped : run.fit.optimizers) {
      if (!before_update(run, wrapped.optimizer())) {
        finding = WindowResult::nonfinite;
        break;
      }
      const HookScope scope(run.entry, Hook::optimizer_step);
      step_optimizer(
          run, [&] { run.entry.module->optimizer_step(run.progress.epoch, epoch.batch_idx, wrapped.optimizer()); });
    }
  }
  count_window(run, finding);
}

// In Lightning a skipped step advances global_step and the schedulers; here they stay, because nothing was trained.
void count_window(Run& run, WindowResult finding) {
  if (finding == WindowResult::nonfinite) return;
  if (finding == WindowResult::good) count_step(run.progress, run.fit.epoch);
  if (run.precision->scaler() != nullptr) move_scale(run, finding == WindowResult::overflow);
}

}  // namespace levin
