#include "levin/trainer/step/automatic_step.h"

#include <utility>

#include "levin/core/error.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/backward.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/micro_batches.h"
#include "levin/trainer/step/micro_batching.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/update.h"

namespace levin {

// The step, in order: training_step, zero_grad at the window's start, backward of the loss divided by the window (and
// scaled), and at the window's end unscaling, clipping and the update.
namespace {

// LBFGS and its like evaluate the model several times within one step.
at::Tensor step_with_closure(Run& run, const Batch& batch, int64_t batch_idx) {
  at::Tensor first_loss;
  Optimizer& optimizer = run.optimizers[0].optimizer();
  optimizer.step([&] {
    at::Tensor loss = run_training_step(run, batch, batch_idx);
    check_loss(loss);
    if (take_loss_weight(run).defined()) {
      throw Error("set_loss_weight: " + optimizer.name() +
                  " evaluates one batch several times for an update, and the batch has nothing beside it to be weighed "
                  "against. Drop the call, or use another optimizer.");
    }
    // Later evaluations are trial points of a line search, which may be anything.
    if (!first_loss.defined() && loss.defined()) (void)keep_if_finite(run, loss);
    zero_gradients(run);
    if (loss.defined()) run_backward(run, loss, true);
    before_update(run, optimizer);
    if (!first_loss.defined()) first_loss = loss;
    return loss;
  });
  return first_loss;
}

// What is added to the gradients: undefined if the batch counts for nothing.
at::Tensor usable_loss(Run& run, const at::Tensor& loss, const at::Tensor& weight) {
  check_loss(loss);
  const at::Tensor weighed = weigh(run, loss, weight);
  return weighed.defined() && !keep_or_note(run, weighed) ? at::Tensor() : weighed;
}

// Forward and backward passes of the micro-batches alternate, so the gradients are zeroed before the first of them, and
// a loss that is not finite is seen when its gradients are there: its update is not made all the same.
at::Tensor step_in_micro_batches(Run& run, const Batch& batch, int64_t batch_idx, const Window& window) {
  if (window.first) zero_gradients(run);
  run.time_split.enter(StepPart::forward);
  const at::Tensor loss = run_micro_batches(run, batch, batch_idx);
  run.time_split.enter(StepPart::callbacks);
  call_plain(run, Hook::on_after_backward, &Callback::on_after_backward, &LightningModule::on_after_backward);
  if (loss.defined()) (void)keep_or_note(run, loss);
  return loss;
}

at::Tensor forward_and_backward(Run& run, const Batch& batch, int64_t batch_idx, const Window& window, bool skipped) {
  if (run.has_peers()) run.strategy->before_forward(window.last);
  if (!skipped && run.strategy->micro_batches() > 1) return step_in_micro_batches(run, batch, batch_idx, window);
  at::Tensor loss = skipped ? at::Tensor() : run_training_step(run, batch, batch_idx);
  const at::Tensor weight = take_loss_weight(run);
  loss = usable_loss(run, loss, weight);
  if (window.first) zero_gradients(run);
  agree_on_weights(run, window.last);
  if (loss.defined()) {
    const at::Tensor counted = counted_loss(run, loss, weight);
    run_backward(run, counted, window.last);
    if (!weight.defined()) return counted.variable_data();  // detached, past the dispatcher
    return loss.detach() / run.progress.window_size;
  }
  if (run.has_peers() && (window.last || run.strategy->has_sharded_weights())) {
    if (window.last) send_notes(run);
    run.strategy->backward_without_loss();  // the others wait for this rank's gradients
    if (window.last) hear_notes(run);
  }
  return loss;
}

}  // namespace

at::Tensor automatic_step(Run& run, const Batch& batch, int64_t batch_idx, const Window& window) {
  const bool skipped = std::exchange(run.skip_batch, false);
  if (window.first) {
    run.unread_loss = at::Tensor();  // of a window that was dropped
    open_loss_weights(run);
  }
  if (!skipped && !run.optimizers.empty() && run.optimizers[0].optimizer().needs_closure()) {
    at::Tensor loss = step_with_closure(run, batch, batch_idx);
    count_step(run);
    return loss.defined() ? loss.detach() : loss;
  }
  at::Tensor loss = run.micro_batching != nullptr ? run.micro_batching->step(batch, batch_idx, window, skipped)
                                                  : forward_and_backward(run, batch, batch_idx, window, skipped);
  if (!window.last) return loss;
  if (!run.progress.window_spoilt) update(run, window);
  run.progress.window_spoilt = false;
  return loss;
}

at::Tensor manual_step(Run& run, const Batch& batch, int64_t batch_idx) {
  if (std::exchange(run.skip_batch, false)) return {};
  run.batch_overflowed.reset();  // of a batch that failed
  if (run.has_peers()) run.strategy->before_forward(true);
  at::Tensor result = run_training_step(run, batch, batch_idx);
  move_scale_of_batch(run);
  return result.defined() ? result.detach() : result;
}

}  // namespace levin
