// How far a fit is, for what happens periodically.
#pragma once

#include <optional>
#include <string>

#include "levin/core/period.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Whether the training batch that has just been done completes a period of batches, of epochs or of the run: the same
/// answer on every rank, and after a resume. Throws Error for a share of an epoch of unknown length, and for a period
/// of time, which the caller has to measure.
[[nodiscard]] bool completes(const Run& run, const Period& period);

/// Why a fit whose limits are reached trains nothing, as a sentence.
[[nodiscard]] std::string why_nothing_is_trained(const Run& run);

/// The share of the run that is done, 0 to 1, by whichever limit is nearer; unset without a limit.
[[nodiscard]] std::optional<double> share_done(const Run& run);

}  // namespace levin
