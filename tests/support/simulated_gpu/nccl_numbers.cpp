#include "nccl_numbers.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace simulated {

namespace {

// Half precision is computed in single, and rounded after each operation.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, float, T>;

template <class T>
T both(T a, T b, ncclRedOp_t op) {
  const auto x = static_cast<Wide<T>>(a), y = static_cast<Wide<T>>(b);
  switch (op) {
    case ncclProd: return static_cast<T>(x * y);
    case ncclMax: return static_cast<T>(std::max(x, y));
    case ncclMin: return static_cast<T>(std::min(x, y));
    default: return static_cast<T>(x + y);
  }
}

template <class T>
void combine_as(const std::vector<const char*>& from, char* to, size_t numbers, ncclRedOp_t op) {
  for (size_t k = 0; k < numbers; ++k) {
    T result = reinterpret_cast<const T*>(from[0])[k];
    for (size_t rank = 1; rank < from.size(); ++rank) {
      result = both(result, reinterpret_cast<const T*>(from[rank])[k], op);
    }
    if (op == ncclAvg) result = static_cast<T>(static_cast<Wide<T>>(result) / static_cast<Wide<T>>(from.size()));
    reinterpret_cast<T*>(to)[k] = result;
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

void combine(const std::vector<const char*>& from, char* to, size_t numbers, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8: combine_as<int8_t>(from, to, numbers, op); return;
    case ncclUint8: combine_as<uint8_t>(from, to, numbers, op); return;
    case ncclInt32: combine_as<int32_t>(from, to, numbers, op); return;
    case ncclUint32: combine_as<uint32_t>(from, to, numbers, op); return;
    case ncclInt64: combine_as<int64_t>(from, to, numbers, op); return;
    case ncclUint64: combine_as<uint64_t>(from, to, numbers, op); return;
    case ncclFloat16: combine_as<__half>(from, to, numbers, op); return;
    case ncclFloat32: combine_as<float>(from, to, numbers, op); return;
    case ncclFloat64: combine_as<double>(from, to, numbers, op); return;
    case ncclBfloat16: combine_as<__nv_bfloat16>(from, to, numbers, op); return;
    default: return;
  }
}

}  // namespace simulated
