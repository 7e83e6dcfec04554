// The loss scale of 16-mixed: how it moves after each window, and what is reported about it.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include "levin/trainer/step/step_core.h"

namespace levin {

/// Throws ConfigError if an optimizer cannot be stepped with a scaled loss.
void check_scaling(Precision& precision, const std::vector<std::shared_ptr<Optimizer>>& optimizers);

/// Updates the scale after a window and counts a skipped step. Throws Error when the scale has collapsed.
void move_scale(StepCore& core, bool overflow);

/// Updates the scale after a batch of manual optimization, once for all optimizers that it stepped. Does nothing
/// without a scaler.
void move_scale_of_batch(StepCore& core);

/// Reports at the end of a fit how many steps were skipped, if any were.
void report_skipped_steps(Precision& precision, const StepCounters& counters);

}  // namespace levin
