// The learning-rate schedulers of a fit.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Attaches the run's schedulers that are not attached yet; one without a length gets the number of steps of the fit.
void attach_schedulers(Run& run);

/// In the sanity check: throws ConfigError if a scheduler monitors a metric that validation does not log.
void check_monitors(Run& run);

/// Steps the schedulers of an interval that are due: with `plateau` the ones that watch a metric, if it has a new
/// value, otherwise all others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
