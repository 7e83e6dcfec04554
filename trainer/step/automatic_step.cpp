#include "levin/trainer/step/automatic_step.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/closure_step.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/micro_batching.h"
#include "levin/trainer/step/nonfinite_loss.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/pipelined_batch.h"
#include "levin/trainer/step/step_notes.h"
#include "levin/trainer/step/update.h"

namespace levin {

namespace {

at::Tensor run_whole_batch(Run& run, const Batch& batch, int64_t batch_idx, const WindowPart& window, bool skipped) {
  const PassLoss pass =
      run_pass(run, {.batch = skipped ? nullptr : &batch,
                     .batch_idx = batch_idx,
                     .sync = window.last,
                     .opens_window = window.first,
                     .judge = [&run](const at::Tensor& loss) { return !loss.defined() || keep_or_note(run, loss); }});
  if (!pass.loss.defined()) return {};
  if (pass.counted.defined() && !pass.weight.defined()) {
    return pass.counted.variable_data();  // detached, past the dispatcher
  }
  return pass.loss.detach() / run.fit.epoch.window.size;
}

}  // namespace

// A batch is computed in one of four ways, all made of passes (pass.h): training_step, zero_grad at the window's start,
// backward of the loss divided by the window (and scaled). At the window's end follow unscaling, clipping and the
// update.
at::Tensor automatic_step(Run& run, const Batch& batch, int64_t batch_idx, const WindowPart& window) {
  const bool skipped = std::exchange(run.fit.skip_batch, false);
  if (!run.fit.optimizers.empty() && run.fit.optimizers[0].optimizer().needs_closure()) {
    return step_with_closure(run, batch, batch_idx, skipped);
  }
  at::Tensor loss;
  if (run.fit.micro_batching != nullptr) {
    loss = run.fit.micro_batching->step(batch, batch_idx, window, skipped);
  } else if (run.strategy->micro_batches() > 1 && !skipped) {
    loss = run_pipelined_batch(run, batch, batch_idx, window);
  } else {
    loss = run_whole_batch(run, batch, batch_idx, window, skipped);
  }
  const bool is_left = run.fit.recording != nullptr && run.fit.recording->leaves_update;
  if (window.last && !is_left && !run.fit.epoch.window.spoilt) update(run, window);
  return loss;
}

at::Tensor manual_step(Run& run, const Batch& batch, int64_t batch_idx) {
  if (std::exchange(run.fit.skip_batch, false)) return {};
  run.fit.batch_overflowed.reset();  // of a batch that failed
  if (run.has_peers()) run.strategy->before_forward(true);
  at::Tensor result = run_training_step(run, batch, batch_idx);
  move_scale_of_batch(run);
  return result.defined() ? result.detach() : result;
}

}  // namespace levin
