// Sums and the like of NCCL's types of numbers.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace simulated {

/// 0 if the type is not simulated.
[[nodiscard]] size_t bytes_of(ncclDataType_t type);
/// `to`: `numbers` of the elementwise result over `from`, in their order. Of a type that is
/// simulated.
void combine(const std::vector<const char*>& from, char* to, size_t numbers, ncclDataType_t type, ncclRedOp_t op);

}  // namespace simulated
