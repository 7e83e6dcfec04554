// The learning-rate schedulers of a fit.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Returns when the trainer moves a scheduler: the option, or the scheduler's default.
[[nodiscard]] Interval interval_of(const LRSchedulerConfig& config);

/// Attaches the run's schedulers that are not attached yet; a scheduler without a length gets the fit's number of
/// steps.
void attach_schedulers(Run& run);

/// Expects the metrics that schedulers monitor (expect_metric). Called before training.
void expect_monitors(Run& run);

/// Steps the schedulers of an interval that are due: with `plateau` the schedulers that watch a metric, if it has a new
/// value, otherwise all others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
