// Warnings of a fit about options and modules that probably do not do what the user meant.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Warns if no training metrics will be written because epochs are shorter than log_every_n_steps. Called after the
/// training loader is made.
void warn_of_unlogged_epochs(const Run& run);

/// Warns of monitored metrics that nothing has logged. Called after the first training batch.
void warn_of_unlogged_monitors(Run& run);

/// Warns of an epoch without a loss or an optimizer step. Called after an epoch, once the ranks have agreed on whether
/// one of them had a loss.
void warn_of_missing_steps(const Run& run);

/// Warns of a training pass that ended after `batches` batches: before its first batch, or before the number of batches
/// that its loader had returned.
void warn_of_short_pass(const Run& run, int64_t batches);

}  // namespace levin
