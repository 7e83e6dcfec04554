#include "levin/trainer/step/update.h"

#include <ATen/ops/amax.h>

#include <utility>

#include "levin/core/process/rank_status.h"
#include "levin/precision/grad_scaler.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/update_scope.h"

namespace levin {

namespace {

// Returns whether the hooks have made a gradient nan or inf on some rank. Hooks may differ between ranks, so all ask.
bool makes_nonfinite(StepCore& core, const Optimizer& optimizer) {
  if (!core.settings.acts_before_update || core.settings.nonfinite_loss == NonFiniteLoss::ignore) return false;
  const bool found = core.verdict->has_nonfinite_gradient(optimizer);
  return core.has_peers() ? core.strategy.ranks().any(found) : found;
}

}  // namespace

bool before_update(StepCore& core, Optimizer& optimizer) {
  core.time_split.enter(StepPart::callbacks);
  core.hooks.on_before_optimizer_step(optimizer);
  core.time_split.enter(StepPart::optimizer);
  const HookScope scope(core.running, Hook::configure_gradient_clipping);
  core.module.configure_gradient_clipping(optimizer, core.settings.gradient_clip_val,
                                          core.settings.gradient_clip_algorithm);
  if (!makes_nonfinite(core, optimizer)) return true;
  core.verdict->act_on_changed_gradient();
  return false;
}

// If the update is sharded over ranks, the optimizer sees only its rank's shards.
void step_optimizer(StepCore& core, c10::function_ref<void()> step) {
  UpdateScope update(core.strategy.sharding());
  step();
  if (core.strategy.sharding().is_sharded()) core.hooks.in_sharded_update();
  update.changed();
}

namespace {

// Returns the flag about gradients for WindowVerdict::decide. Unscales the gradients if there is a scaler.
at::Tensor judged_gradients(StepCore& core) {
  if (core.optimizers.empty()) return {};
  const Optimizer& optimizer = core.optimizers[0].optimizer();  // automatic: one optimizer
  GradScaler* scaler = core.precision.scaler();
  return scaler != nullptr ? scaler->unscale_(optimizer.parameters()) : core.verdict->nonfinite_gradients(optimizer);
}

// See Note [What a recorded step leaves to the host] in step_graph.h: the device decides here, and the host reads
// later.
void record_update(StepCore& core) {
  StepNotes& notes = *core.recording;
  notes.loss = std::exchange(core.window.unread_loss, at::Tensor());
  if (!core.verdict->is_late()) {
    notes.flags = core.verdict->decision_flags(notes.loss, judged_gradients(core));
  } else {
    notes.flags = core.verdict->late_flag(notes.loss, notes.received_flags);
    if (notes.loss.defined()) notes.loss = WindowVerdict::with_late_flag(notes.loss, notes.flags);
  }
  Optimizer& optimizer = core.optimizers[0].optimizer();
  (void)before_update(core, optimizer);  // no hook acts: updates_on_host
  const HookScope scope(core.running, Hook::optimizer_step);
  if (notes.flags.defined()) {
    optimizer.step_unless(notes.flags.dim() == 0 ? notes.flags : at::amax(notes.flags));
  } else {
    optimizer.step();
  }
}

// See Note [Late checks] in window_verdict.h.
void update_before_check(StepCore& core) {
  const at::Tensor loss = std::exchange(core.window.unread_loss, at::Tensor());
  const at::Tensor received_flags = std::exchange(core.window.received, at::Tensor());
  at::Tensor flag;
  {
    const RankWait waiting(device_wait_text(core));
    flag = core.verdict->late_flag(loss, received_flags);
    core.hooks.device_is_busy();
    // Of the window before: the device has this one to compute meanwhile.
    core.verdict->finish_late_check_and_receive();
  }
  Optimizer& optimizer = core.optimizers[0].optimizer();
  (void)before_update(core, optimizer);  // no hook acts: updates_on_host
  {
    const HookScope scope(core.running, Hook::optimizer_step);
    step_optimizer(core, [&] { flag.defined() ? optimizer.step_unless(flag) : optimizer.step(); });
  }
  if (flag.defined()) core.verdict->begin_late_check(flag, loss, received_flags);
  count_window(core, WindowResult::good);
}

}  // namespace

void update(StepCore& core, const WindowPart& window) {
  const Window& open = core.window;
  core.time_split.enter(StepPart::optimizer);
  const bool weighted = normalize_gradients(core);
  // A window cut short by the end of a loader of unknown length: its gradients were divided by the full size.
  if (!weighted && !window.size_known && open.seen < open.size) {
    multiply_gradients(core, static_cast<double>(open.size) / static_cast<double>(open.seen));
  }
  const ProfilerScope profile(core.profiler, "optimizer_step");
  if (core.recording != nullptr) return record_update(core);
  if (core.verdict->is_late()) return update_before_check(core);
  WindowResult finding = core.verdict->decide(judged_gradients(core));
  if (finding == WindowResult::good) {
    for (auto& wrapped : core.optimizers) {
      if (!before_update(core, wrapped.optimizer())) {
        finding = WindowResult::nonfinite;
        break;
      }
      const HookScope scope(core.running, Hook::optimizer_step);
      step_optimizer(core,
                     [&] { core.module.optimizer_step(core.place.epoch, core.place.batch_idx, wrapped.optimizer()); });
    }
  }
  count_window(core, finding);
}

// In Lightning a skipped step advances global_step and the schedulers; here they stay, because nothing was trained.
void count_window(StepCore& core, WindowResult finding) {
  if (finding == WindowResult::nonfinite) return;
  if (finding == WindowResult::good) ++core.counters.global_step;
  if (core.precision.scaler() != nullptr) move_scale(core, finding == WindowResult::overflow);
}

}  // namespace levin
