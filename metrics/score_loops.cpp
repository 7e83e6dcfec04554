#include "levin/metrics/score_loops.h"

#include <algorithm>
#include <cstring>

#include "levin/metrics/widest_vectors.h"

namespace levin::metrics {

namespace {

constexpr int64_t kBlock = 2048;  // 8 kB: what was copied is still in the first cache when it is looked at

struct AnyOutside {
  [[gnu::always_inline]] static inline bool run(const float* scores, int64_t count) {
    int32_t outside = 0;
#pragma omp simd reduction(| : outside)
    for (int64_t i = 0; i < count; ++i) {
      const int32_t is_inside = (scores[i] >= kLowestProbability) & (scores[i] <= kHighestProbability);
      outside |= is_inside ^ 1;  // of nan neither comparison holds
    }
    return outside != 0;
  }
};

}  // namespace

bool any_outside_unit(const float* scores, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) {
    if (with_widest_vectors<AnyOutside>(scores + i, std::min(kBlock, count - i))) return true;
  }
  return false;
}

bool copy_and_look(const float* scores, int64_t count, float* into) {
  bool outside = false;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t part = std::min(kBlock, count - i);
    std::memcpy(into + i, scores + i, static_cast<size_t>(part) * sizeof(float));
    outside = outside || with_widest_vectors<AnyOutside>(scores + i, part);
  }
  return outside;
}

}  // namespace levin::metrics
