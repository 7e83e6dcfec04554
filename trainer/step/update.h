// The end of an accumulation window: unscaling, clipping, the optimizers' steps, and the counters.
#pragma once

#include <c10/util/FunctionRef.h>

#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

/// The hooks before an optimizer's update, and clipping. Returns false if they have made a gradient nan or inf on some
/// rank, which the policy skips (or throws NonFiniteLossError): there must be no update.
[[nodiscard]] bool before_update(StepCore& core, Optimizer& optimizer);
/// The update itself. Every rank calls it.
void step_optimizer(StepCore& core, c10::function_ref<void()> step);
/// The update of automatic optimization, or its counterpart during capture.
void update(StepCore& core, const WindowPart& window);
/// Follows the update of a window, or its omission: counters, and the loss scale.
void count_window(StepCore& core, WindowResult finding);

}  // namespace levin
