// The corners of a curve over all scores of a class, counted in the CPU's memory without sorting all scores.
#pragma once

#include <cstdint>
#include <vector>

namespace levin::metrics {

/// True and false positives at falling thresholds. Between two neighbours at most one of them changes, or both change
/// at one score: what lies between them is a straight line.
struct CurveCounts {
  std::vector<double> tp = {}, fp = {};
  bool has_nan = false;            // then nothing else holds
  bool no_label_but_zero = false;  // of those that count
};

/// Of `count` scores with their labels; a label below 0 does not count, `positive` is a positive. The positive scores
/// are sorted, and each other one is looked up among them: quick where a class is one of many.
[[nodiscard]] CurveCounts count_curve(const float* scores, const int32_t* labels, int64_t count, int32_t positive);

}  // namespace levin::metrics
