#include "levin/trainer/step/automatic_step.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "levin/recompute/recomputation.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/step/batch_parts.h"
#include "levin/trainer/step/closure_step.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/micro_batching.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/update.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

namespace {

at::Tensor run_whole_batch(StepCore& core, const Batch& batch, int64_t batch_idx, const WindowPart& window,
                           bool skipped) {
  const PassLoss pass =
      run_pass(core, {.batch = skipped ? nullptr : &batch,
                      .batch_idx = batch_idx,
                      .sync = window.last,
                      .opens_window = window.first,
                      .judge = [&core](const at::Tensor& loss) { return !loss.defined() || core.verdict->add(loss); }});
  if (!pass.loss.defined()) return {};
  if (pass.counted.defined() && !pass.weight.defined()) {
    return pass.counted.variable_data();  // detached, past the dispatcher
  }
  return pass.loss.detach() / core.window.size;
}

// A pass for each micro-batch, in the order of a strategy that computes several of them at a time. Returns the mean
// loss of the batch divided by the window, detached; undefined if no micro-batch had one. Forward and backward passes
// of the micro-batches alternate, so the gradients are zeroed before the first of them, and a loss that is not finite
// is noticed when its gradients already exist: the update is skipped nevertheless.
at::Tensor run_pipelined_batch(StepCore& core, const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  if (window.first) zero_gradients(core);
  core.time_split.enter(StepPart::forward);
  const auto sizes = share_sizes(batch.size(), static_cast<size_t>(core.strategy.gradients().micro_batches()));
  BatchParts parts(batch, sizes, std::vector<DeviceSlot>(sizes.size(), {0, core.strategy.placement().device()}));
  {
    const HookScope scope(core.running, Hook::training_step);
    core.strategy.gradients().run_micro_batches(parts.count(), [&](size_t k) {
      PassLoss loss;
      const Pass pass{.batch = &parts.batches[k],
                      .batch_idx = batch_idx,
                      .sync = window.last,
                      .parts = static_cast<int64_t>(parts.count()),
                      .share = parts.share_of(k),
                      .part = &parts.shares[k]};
      at::Tensor start = begin_piped_pass(core, pass, loss);
      if (loss.loss.defined()) parts.losses[k] = loss.loss.detach();
      return start;
    });
  }
  if (core.recomputation) core.recomputation->check_called();
  const at::Tensor mean = finish_parts(core, parts);
  core.time_split.enter(StepPart::callbacks);
  core.hooks.on_after_backward();
  if (mean.defined()) (void)core.verdict->add(mean);
  return mean;
}

}  // namespace

// A batch is computed in one of four ways, all made of passes (pass.h): training_step, zero_grad at the window's start,
// backward of the loss divided by the window (and scaled). At the window's end follow unscaling, clipping and the
// update.
at::Tensor automatic_step(StepCore& core, const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  const bool skipped = std::exchange(core.skip_batch, false);
  if (!core.optimizers.empty() && core.optimizers[0].optimizer().needs_closure()) {
    return step_with_closure(core, batch, batch_idx, skipped);
  }
  at::Tensor loss;
  if (core.micro_batching != nullptr) {
    loss = core.micro_batching->step(batch, batch_idx, window, skipped);
  } else if (core.strategy.gradients().micro_batches() > 1 && !skipped) {
    loss = run_pipelined_batch(core, batch, batch_idx, window);
  } else {
    loss = run_whole_batch(core, batch, batch_idx, window, skipped);
  }
  const bool is_left = core.recording != nullptr && core.recording->updates_on_host;
  if (window.last && !is_left && !core.window.has_nonfinite_loss) update(core, window);
  return loss;
}

at::Tensor manual_step(StepCore& core, const Batch& batch, int64_t batch_idx) {
  if (std::exchange(core.skip_batch, false)) return {};
  core.batch_overflowed.reset();  // of a batch that failed
  if (core.has_peers()) core.strategy.gradients().before_forward(true);
  at::Tensor result = run_training_step(core, batch, batch_idx);
  move_scale_of_batch(core);
  return result.defined() ? result.detach() : result;
}

}  // namespace levin
