// One training batch: step, backward, and at the end of an accumulation window the update. The order of a step can be
// read in automatic_step (automatic_step.cpp).
#pragma once

#include <ATen/core/ATen_fwd.h>

#include "levin/data/batch.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"

namespace levin {

/// Runs training_step and what belongs to it. Returns the detached loss divided by the window's size, undefined if
/// there is none.
at::Tensor automatic_step(StepCore& core, const Batch& batch, int64_t batch_idx, const WindowPart& window);

/// Runs training_step of a module with manual optimization, which does everything else itself. Returns the detached
/// loss.
at::Tensor manual_step(StepCore& core, const Batch& batch, int64_t batch_idx);

}  // namespace levin
