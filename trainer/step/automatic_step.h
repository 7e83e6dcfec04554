// One training batch: step, backward, and at the end of an accumulation window the update. The order of a step can be
// read in automatic_step (automatic_step.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/data/batch.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"

namespace levin {

struct StepCore;

/// Runs training_step and what belongs to it; returns the detached loss divided by the window (undefined if none).
at::Tensor automatic_step(StepCore& core, const Batch& batch, int64_t batch_idx, const WindowPart& window);

/// The same for modules with manual optimization: the step does everything itself.
at::Tensor manual_step(StepCore& core, const Batch& batch, int64_t batch_idx);

// A training batch cut into micro-batches, for a strategy that computes several of them at a time.

/// A pass for each micro-batch, in the strategy's order: computes the gradients of the batch's loss divided by the
/// window, scaled if the precision scales. Returns the mean loss of the batch divided by the window, detached;
/// undefined if no micro-batch had one. Logged values are logged once, for the whole batch.
[[nodiscard]] at::Tensor run_pipelined_batch(StepCore& core, const Batch& batch, int64_t batch_idx,
                                             const WindowPart& window);

}  // namespace levin
