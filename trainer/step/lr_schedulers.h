// The learning-rate schedulers of a fit.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Attaches the run's schedulers that are not attached yet; one without a length gets the number of steps of the fit.
void attach_schedulers(Run& run);

/// Steps the schedulers of an interval that are due: those that watch a metric if `plateau`, else the others.
void step_schedulers(Run& run, Interval interval, bool plateau);

}  // namespace levin
