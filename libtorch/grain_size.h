// The number of elements from which elementwise operators divide their work among threads. Internal.
#pragma once

#include <ATen/TensorIterator.h>

namespace levin {

inline constexpr int64_t kGrainSize = at::internal::GRAIN_SIZE;

}  // namespace levin
