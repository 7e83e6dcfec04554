// The learning-rate schedulers of a fit.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Attaches the run's schedulers that are not; one that leaves its length open is given the steps of the fit.
void attach_schedulers(Run& run);

/// Moves the schedulers of an interval that are due. `plateau`: those that watch a metric, and only those; else the
/// others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
