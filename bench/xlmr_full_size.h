// Predicts the memory and time of a step of a complete XLM-R from two of its layers: the prediction of
// `levin plan memory` with the remaining layers added.
#pragma once

#include "xlmr_runs.h"

namespace bench::xlmr {

/// Measures `size.layers` layers on eight sequences and on four, and predicts all layers on the column's batch. Call it
/// once per process. Times are for this machine.
[[nodiscard]] Cost predict_full_size(const Column& column, const Size& size);

}  // namespace bench::xlmr
