// What a fit logs about itself when something is probably not meant.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// After the training loader is made: a user who sees no metrics of training should know why.
void warn_of_unlogged_epochs(const Run& run);

/// After the first training batch: warns of monitored metrics that nothing has logged.
void warn_of_unlogged_monitors(Run& run);

/// After an epoch, once the ranks have agreed on whether one of them had a loss.
void warn_of_missing_steps(const Run& run);

}  // namespace levin
