// One training batch: step, backward, and at the end of an accumulation window the update. The order of a step can be
// read in automatic_step (optimization.cpp).
#pragma once

#include "levin/trainer/loss_scaling.h"
#include "levin/trainer/run.h"

namespace levin {

/// Which part of an accumulation window a batch is; how many it has and has seen is in Progress.
struct Window {
  bool first = true;
  bool last = true;
  bool size_known = true;  // false: the window may be cut by the end of a loader of unknown length
};

/// Runs training_step and what belongs to it; returns the detached loss divided by the window (undefined if none).
at::Tensor automatic_step(Run& run, const Batch& batch, int64_t batch_idx, const Window& window);

/// The same for modules with manual optimization: the step does everything itself.
at::Tensor manual_step(Run& run, const Batch& batch, int64_t batch_idx);

/// training_step under the precision's autocast: the loss, or undefined.
[[nodiscard]] at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx);

/// At the start of a window, with its hooks.
void zero_gradients(Run& run);

/// What follows the update of a window, or its absence: counters, and the loss scale.
void count_window(Run& run, Finding finding);

/// Backward with its hooks; `sync` is false inside an accumulation window.
void run_backward(Run& run, const at::Tensor& loss, bool sync);

/// Throws Error for a loss that is not one number, or has no gradient; an undefined one is good.
void check_loss(const at::Tensor& loss);

/// Attaches the run's schedulers that are not; one that leaves its length open is given the steps of the fit.
void attach_schedulers(Run& run);

/// Moves the schedulers of an interval that are due. `plateau`: those that watch a metric, and only those; else the
/// others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
