// The learning-rate schedulers of a fit.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// When the trainer moves a scheduler: the option, or the scheduler's own.
[[nodiscard]] Interval interval_of(const LRSchedulerConfig& config);

/// Attaches the run's schedulers that are not attached yet; one without a length gets the number of steps of the fit.
void attach_schedulers(Run& run);

/// Before training: expects the metrics that schedulers monitor (expect_metric).
void expect_monitors(Run& run);

/// Steps the schedulers of an interval that are due: with `plateau` the ones that watch a metric, if it has a new
/// value, otherwise all others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
