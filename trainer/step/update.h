// The end of an accumulation window: unscaling, clipping, the optimizers' steps, and the counters.
#pragma once

#include <c10/util/FunctionRef.h>

#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

/// Calls the hooks before an optimizer's update, and clips. Returns false if they have made a gradient nan or inf on
/// some rank: then the policy was applied (or NonFiniteLossError is thrown) and there must be no update.
[[nodiscard]] bool before_update(StepCore& core, Optimizer& optimizer);
/// Updates the weights. Every rank calls it.
void step_optimizer(StepCore& core, c10::function_ref<void()> step);
/// Runs the end of a window in automatic optimization, or its counterpart during capture.
void update(StepCore& core, const WindowPart& window);
/// Updates the counters and the loss scale after a window's update, or its omission.
void count_window(StepCore& core, WindowResult finding);

}  // namespace levin
