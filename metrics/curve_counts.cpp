#include "levin/metrics/curve_counts.h"

#include <algorithm>
#include <functional>

namespace levin::metrics {

namespace {

// How many of the falling `levels` are above `score`. Without a branch on the data, which could not be predicted.
size_t levels_above(const std::vector<float>& levels, float score) {
  if (levels.empty()) return 0;
  const float* base = levels.data();
  for (size_t left = levels.size(); left > 1;) {
    const size_t half = left / 2;
    base += base[half - 1] > score ? half : 0;
    left -= half;
  }
  return static_cast<size_t>(base - levels.data()) + (*base > score ? 1 : 0);
}

}  // namespace

CurveCounts count_curve(const float* scores, const int32_t* labels, int64_t count, int32_t positive) {
  CurveCounts counts;
  std::vector<float> levels;
  bool only_zeros = true;
  for (int64_t i = 0; i < count; ++i) {
    counts.has_nan = counts.has_nan || scores[i] != scores[i];
    only_zeros = only_zeros && labels[i] <= 0;
    if (labels[i] == positive) levels.push_back(scores[i]);
  }
  if (counts.has_nan) return counts;
  counts.no_label_but_zero = only_zeros;
  std::sort(levels.begin(), levels.end(), std::greater<>());
  std::vector<int64_t> positives;  // at each level
  size_t different = 0;
  for (size_t i = 0; i < levels.size(); ++i) {
    if (i == 0 || levels[i] != levels[different - 1]) {
      levels[different++] = levels[i];
      positives.push_back(0);
    }
    ++positives.back();
  }
  levels.resize(different);
  std::vector<int64_t> above(different + 1, 0), level(different + 1, 0);  // negatives between two levels, and at one
  for (int64_t i = 0; i < count; ++i) {
    if (labels[i] < 0 || labels[i] == positive) continue;
    const size_t k = levels_above(levels, scores[i]);
    ++(k < different && levels[k] == scores[i] ? level : above)[k];
  }
  int64_t tp = 0, fp = 0;
  const auto corner = [&] {
    counts.tp.push_back(static_cast<double>(tp));
    counts.fp.push_back(static_cast<double>(fp));
  };
  for (size_t k = 0; k <= different; ++k) {
    fp += above[k];
    if (above[k] > 0) corner();
    if (k == different) break;
    tp += positives[k];
    fp += level[k];
    corner();
  }
  return counts;
}

}  // namespace levin::metrics
