// Looks at scores in the CPU's memory, and copies them in the same pass.
#pragma once

#include <cstdint>

#include "levin/metrics/classification_options.h"

namespace levin::metrics {

inline constexpr auto kLowestProbability = static_cast<float>(-kScoreTolerance);
inline constexpr auto kHighestProbability = static_cast<float>(1 + kScoreTolerance);

/// Whether one of `count` scores is outside [0, 1] by more than kScoreTolerance, or is nan. Stops near the first.
[[nodiscard]] bool any_outside_unit(const float* scores, int64_t count);

/// The same, and copies all scores to `into`: memory is read once.
[[nodiscard]] bool copy_and_look(const float* scores, int64_t count, float* into);

}  // namespace levin::metrics
