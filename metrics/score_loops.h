// Loops over scores in the CPU's memory: whether they are probabilities, and log(sum(exp(x))) of rows. Internal.
#pragma once

#include <cstdint>

namespace levin::metrics {

/// Probabilities that were computed with rounding, such as sums of float32 products, may be this far outside [0, 1].
inline constexpr double kScoreTolerance = 1e-4;

inline constexpr auto kLowestProbability = static_cast<float>(-kScoreTolerance);
inline constexpr auto kHighestProbability = static_cast<float>(1 + kScoreTolerance);

/// Whether one of `count` scores is outside [0, 1] by more than kScoreTolerance, or is nan. Stops near the first.
[[nodiscard]] bool any_outside_unit(const float* scores, int64_t count);

/// The same, and copies all scores to `into`, so that memory is read once.
[[nodiscard]] bool copy_and_look(const float* scores, int64_t count, float* into);

/// For each row of a matrix: log(sum(exp(row))), added up in double. nan if a value is nan or +infinity, or if all are
/// -infinity, as at::log_softmax gives.
template <class T>
void row_log_sum_exp(const T* x, int64_t rows, int64_t columns, double* into);

}  // namespace levin::metrics
