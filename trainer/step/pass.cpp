#include "levin/trainer/step/pass.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/precision/grad_scaler.h"
#include "levin/recompute/recomputation.h"
#include "levin/trainer/step/loss_shapes.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/module_replicas.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/step_share.h"
#include "levin/trainer/step/unregistered_leaves.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

namespace {

void refuse_weight(const Optimizer& optimizer) {
  throw Error("set_loss_weight: " + optimizer.name() +
              " evaluates one batch several times for an update, and there is no other batch to weigh it "
              "against. Drop the call, or use another optimizer.");
}

at::Tensor scaled(StepCore& core, const at::Tensor& loss) {
  GradScaler* scaler = core.precision.scaler();
  return scaler == nullptr || !loss.defined() ? loss : scaler->scale(loss);
}

// Returns the flags on the device: what the host has set, and whether a loss of the window is not finite, which the
// device finds out.
at::Tensor flags_on_device(const StepCore& core, const RankFlags& own) {
  const at::NoGradGuard no_grad;
  const auto number = at::TensorOptions(at::kFloat).device(core.strategy.placement().device());
  at::Tensor own_flags = at::zeros({static_cast<int64_t>(kRankFlags)}, number);
  if (!own.empty()) own_flags.copy_(flags_tensor(own));
  const at::Tensor& losses = core.window.unread_loss;
  if (losses.defined()) mark_if_not_finite(own_flags.select(0, static_cast<int64_t>(RankFlag::nonfinite_loss)), losses);
  return own_flags;
}

// The flags of a recorded step: whether the window's losses are finite, which the step finds out itself, and the host's
// flags. On a device the host's flags are exchanged by agree_on_replay.
at::Tensor flags_in_step(const StepCore& core, bool sync) {
  if (core.strategy.recorder().has_flags_on_device()) return sync ? flags_on_device(core, {}) : at::Tensor();
  const at::NoGradGuard no_grad;
  const at::Tensor& own_flags = core.recording->own_flags;
  const at::Tensor& losses = core.window.unread_loss;
  if (!losses.defined() || !own_flags.defined()) return own_flags;
  static_assert(static_cast<size_t>(RankFlag::nonfinite_loss) == 0);
  return at::cat({at::isfinite(losses).logical_not().to(own_flags.scalar_type()).reshape({1}), own_flags.slice(0, 1)});
}

// Whether ranks exchange flags on the device. A recorded step does it differently.
bool sends_flags_on_device(const StepCore& core) {
  return core.has_peers() && core.strategy.recorder().has_flags_on_device() && core.recording == nullptr;
}

// `loss`: undefined on a rank that has none. The received flags stay on the device until LateCheck reads them, if there
// is one.
void run_backward_on_device(StepCore& core, const at::Tensor& loss, bool sync) {
  const at::Tensor own = sync ? flags_on_device(core, core.flags_to_send(/*sync=*/true)) : at::Tensor();
  const at::Tensor received_flags = core.strategy.recorder().backward_recorded(scaled(core, loss), sync, own);
  if (sync) core.verdict->receive_on_device(received_flags);
}

// A recording that also runs this step has already taken the flags.
RankFlags own_flags(StepCore& core, bool sync) {
  const StepNotes* recording = core.recording;
  if (recording != nullptr && recording->own_flags.defined())
    return sync ? flags_of(recording->own_flags) : RankFlags();
  return core.flags_to_send(sync);
}

// training_step has returned, and its hook has ended; the mistake is there.
void check_result(StepCore& core, const at::Tensor& loss) {
  try {
    check_loss(loss);
  } catch (const Error&) {
    core.running.failed_hook = Hook::training_step;
    throw;
  }
}

// The part between training_step and backward.
void count(StepCore& core, const Pass& pass, PassLoss& result) {
  result.weight = pass.part != nullptr ? pass.part->loss_weight : take_loss_weight(core);
  check_result(core, result.loss);
  if (pass.closure != nullptr && result.weight.defined()) refuse_weight(*pass.closure);
  result.loss = weigh(core, result.loss, result.weight, pass.parts);
  const bool counts = !pass.judge || pass.judge(result.loss);
  if (pass.opens_window) zero_gradients(core);
  agree_on_weights(core, pass.sync);
  if (result.loss.defined() && counts) result.counted = counted_loss(core, result.loss, result.weight, pass.share);
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

at::Tensor run_training_step(StepCore& core, const Batch& batch, int64_t batch_idx) {
  core.time_split.enter(StepPart::forward);
  (void)take_loss_weight(core);                                                // of a step that failed
  if (!core.outputs.empty() && this_share() == nullptr) core.outputs.clear();  // of a closure's last call
  const ProfilerScope profile(core.profiler, "training_step");
  const ForwardScope forward(core.precision, core.strategy.placement().device().type());
  const HookScope scope(core.running, Hook::training_step);
  std::optional<LossShapeCheck> shapes;
  if (!std::exchange(core.looked_at_loss_shapes, true)) shapes.emplace();
  const ReadLeavesScope leaves(core);
  at::Tensor loss = run_step(core, batch, ModuleReplicas::Result::loss,
                             [&](LightningModule& m, const Batch& b) { return m.training_step(b, batch_idx); });
  if (core.recomputation) core.recomputation->check_called();
  return loss;
}

void zero_gradients(StepCore& core) {
  core.time_split.enter(StepPart::optimizer);
  for (auto& wrapped : core.optimizers) {
    Optimizer& optimizer = wrapped.optimizer();
    core.hooks.on_before_zero_grad(optimizer);
    const HookScope scope(core.running, Hook::optimizer_zero_grad);
    core.module.optimizer_zero_grad(optimizer);
  }
}

void run_backward(StepCore& core, const at::Tensor& loss, bool sync, bool has_hooks) {
  if (has_hooks) {
    core.time_split.enter(StepPart::callbacks);
    core.hooks.on_before_backward(loss);
  }
  note_leaves(core, loss);
  core.time_split.enter(StepPart::backward);
  {
    const ProfilerScope profile(core.profiler, "backward");
    const HookScope scope(core.running, Hook::backward);
    if (core.recording != nullptr && core.has_peers()) {
      core.recording->received_flags =
          core.strategy.recorder().backward_recorded(scaled(core, loss), sync, flags_in_step(core, sync));
    } else if (sends_flags_on_device(core)) {
      run_backward_on_device(core, loss, sync);
    } else {
      core.receive(core.strategy.gradients().backward(scaled(core, loss), sync, own_flags(core, sync)));
    }
  }
  if (has_hooks) {
    core.time_split.enter(StepPart::callbacks);
    core.hooks.on_after_backward();
  }
}

void run_backward_without_loss(StepCore& core, bool sync) {
  if (!core.has_peers() || !(sync || core.strategy.sharding().has_sharded_weights())) return;
  core.time_split.enter(StepPart::backward);
  if (sends_flags_on_device(core)) return run_backward_on_device(core, {}, sync);
  core.receive(core.strategy.gradients().backward_without_loss(sync, own_flags(core, sync)));
}

PassLoss run_pass(StepCore& core, const Pass& pass) {
  PassLoss result;
  if (core.has_peers()) core.strategy.gradients().before_forward(pass.sync);
  if (pass.batch != nullptr) {
    std::optional<ShareScope> part;
    if (pass.part != nullptr) part.emplace(*pass.part);
    result.loss = run_training_step(core, *pass.batch, pass.batch_idx);
  }
  count(core, pass, result);
  if (result.counted.defined()) {
    run_backward(core, result.counted, pass.sync, pass.has_hooks);
  } else {
    run_backward_without_loss(core, pass.sync);  // the others wait for this rank's gradients
  }
  return result;
}

at::Tensor begin_piped_pass(StepCore& core, const Pass& pass, PassLoss& result) {
  const ShareScope part(*pass.part);
  {
    const ForwardScope forward(core.precision, core.strategy.placement().device().type());
    result.loss = core.module.training_step(*pass.batch, pass.batch_idx);
  }
  count(core, pass, result);
  if (result.counted.defined()) note_leaves(core, result.counted);
  return scaled(core, result.counted);
}

}  // namespace levin
