// Looks at scores in the CPU's memory, and copies them in the same pass.
#pragma once

#include <cstdint>

namespace levin::metrics {

/// Whether one of `count` scores is outside [0, 1] or nan. Stops near the first.
[[nodiscard]] bool any_outside_unit(const float* scores, int64_t count);

/// The same, and copies all scores to `into`: memory is read once.
[[nodiscard]] bool copy_and_look(const float* scores, int64_t count, float* into);

}  // namespace levin::metrics
