// The number of elements from which elementwise operators divide their work among threads. Checked with LibTorch 2.6,
// 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
#pragma once

#include <ATen/TensorIterator.h>

namespace levin {

inline constexpr int64_t kGrainSize = at::internal::GRAIN_SIZE;

}  // namespace levin
