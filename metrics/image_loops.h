// Structural similarity of images in the CPU's memory.
#pragma once

#include <cstdint>
#include <vector>

namespace levin::metrics {

/// A filter along rows and one along columns, of odd lengths, whose weights sum to 1; and the two constants that keep
/// quotients finite.
struct SimilarityWindow {
  std::vector<double> vertical;
  std::vector<double> horizontal;
  double c1 = 0, c2 = 0;
  bool clamps = false;  // values are clamped to [low, high] first
  double low = 0, high = 0;
};

/// The mean structural similarity of two planes of `height` x `width`, reflected at their borders. Each side must be
/// longer than half the filter.
template <class T>
double plane_similarity(const T* preds, const T* target, int64_t height, int64_t width, const SimilarityWindow& window);

}  // namespace levin::metrics
