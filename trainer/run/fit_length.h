// How many optimizer steps a fit has, and how often it moves a learning-rate schedule.
//
// Note [Length of a resumed fit]
// A schedule that ends with the run needs its length in advance. A fit that continues from a checkpoint may take other
// batches per step than the run has taken so far, so its length is the number of steps before the checkpoint plus the
// number of steps that the present options make of the remaining batches. Both are counted as planned: a step that was
// skipped, and an epoch that was cut, count in full, so a run that is resumed with the same options keeps its length,
// and with it its schedule, bitwise. The number of steps in each epoch before the checkpoint is not saved: if the
// present options do not explain their sum, they are spread evenly.
#pragma once

#include <optional>
#include <string>

#include "levin/core/options/units.h"
#include "levin/trainer/lr_scheduler_options.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Returns the position that a checkpoint's progress was saved at.
[[nodiscard]] FitPosition saved_position(const State& progress);

/// Returns the position of the running fit, to be saved with `progress`.
[[nodiscard]] FitPosition planned_position(const Run& run, const State& progress);

/// Returns the optimizer steps of the whole fit; kUnlimited if open. Creates the training loader if necessary. The
/// number stays the same after the fit. Throws Error after a fit that failed before its loader was known.
[[nodiscard]] int64_t estimated_stepping_batches(Run& run);

/// Returns how often a whole fit, which trains something, reaches the `every`-th epoch, or the `every`-th step of an
/// epoch; kUnlimited if that is not known.
[[nodiscard]] int64_t moves_of_fit(Run& run, Interval interval, int64_t every);

/// Returns how often the run has reached it so far, without steps that were skipped. Called after load_progress().
[[nodiscard]] int64_t moves_so_far(const Run& run, Interval interval, int64_t every);

// The progress of a fit, for what happens periodically.

/// Returns whether the training batch that has just been done completes a period of batches, of epochs or of the run:
/// the same answer on every rank, and after a resume. Throws Error for a share of an epoch of unknown length, and for a
/// period of time, which the caller has to measure.
[[nodiscard]] bool completes(const Run& run, const Period& period);

/// Returns why a fit whose limits are reached trains nothing, as a sentence.
[[nodiscard]] std::string why_nothing_is_trained(const Run& run);

/// Returns the fraction of the run that is done, 0 to 1, by the limit that is nearest; unset without a limit.
[[nodiscard]] std::optional<double> share_done(const Run& run);

}  // namespace levin
