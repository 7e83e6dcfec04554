// The memory and time of a step of a whole XLM-R, from two of its layers: what `levin plan memory` predicts of a model,
// with the remaining layers added.
#pragma once

#include "xlmr_runs.h"

namespace bench::xlmr {

/// Measures `size.layers` layers on eight texts and on four, and predicts all layers on the column's batch. One call a
/// process. Times are this machine's.
[[nodiscard]] Cost predict_full_size(const Column& column, const Size& size);

}  // namespace bench::xlmr
