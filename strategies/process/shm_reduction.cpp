#include "levin/strategies/process/shm_reduction.h"

#include <ATen/Dispatch.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "levin/core/error.h"

namespace levin {

namespace {

constexpr int64_t kBlock = 1024;  // elements, so that partial results stay in the first-level cache

template <typename T>
using Accumulated = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

// `count`: an int64_t, or a whole block, for which compilers use vector instructions.
using Whole = std::integral_constant<int64_t, kBlock>;

template <typename A, typename T, typename Count, typename Op>
void accumulate(const T* __restrict part, Count count, A* __restrict sums, Op op) {
  for (int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], static_cast<A>(part[i]));
}

template <typename A, typename T, typename Count>
void convert(const A* __restrict from, Count count, T* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

template <typename T, typename Count, typename Op>
void reduce_block(const std::vector<const std::byte*>& parts, int64_t start, Count count, std::byte* out, bool average,
                  Op op) {
  using A = Accumulated<T>;
  std::array<A, kBlock> sums;
  convert(reinterpret_cast<const T*>(parts[0]) + start, count, sums.data());
  for (size_t k = 1; k < parts.size(); ++k) {
    accumulate(reinterpret_cast<const T*>(parts[k]) + start, count, sums.data(), op);
  }
  if constexpr (std::is_floating_point_v<A>) {
    const auto ranks = static_cast<A>(parts.size());
    if (average) {
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] /= ranks;
    }
  }
  convert(sums.data(), count, reinterpret_cast<T*>(out) + start);
}

template <typename T, typename Op>
void reduce_as(const std::vector<const std::byte*>& parts, int64_t count, std::byte* out, bool average, Op op) {
  int64_t start = 0;
  for (; start + kBlock <= count; start += kBlock) reduce_block<T>(parts, start, Whole(), out, average, op);
  if (start < count) reduce_block<T>(parts, start, count - start, out, average, op);
}

template <typename T>
void reduce_type(ShmReduction reduction, const std::vector<const std::byte*>& parts, int64_t count, std::byte* out) {
  using A = Accumulated<T>;
  constexpr bool kTruth = std::is_same_v<T, bool>;
  const auto run = [&](auto op) { reduce_as<T>(parts, count, out, reduction == ShmReduction::average, op); };
  switch (reduction) {
    case ShmReduction::sum:
    case ShmReduction::average:
      return run([](A a, A b) { return kTruth ? static_cast<A>(a || b) : static_cast<A>(a + b); });
    case ShmReduction::product: return run([](A a, A b) { return static_cast<A>(a * b); });
    case ShmReduction::min: return run([](A a, A b) { return b < a ? b : a; });
    case ShmReduction::max: return run([](A a, A b) { return a < b ? b : a; });
  }
}

}  // namespace

void check_reducible(ShmReduction reduction, at::ScalarType type) {
  if (!c10::isFloatingType(type) && !c10::isIntegralType(type, /*includeBool=*/true)) {
    throw Error(std::string("process_group_backend shm: tensors of type ") + c10::toString(type) +
                " cannot be reduced. Use process_group_backend: gloo, or convert them.");
  }
  if (reduction == ShmReduction::average && !c10::isFloatingType(type)) {
    throw Error(std::string("process_group_backend shm: an average over ranks is for floating-point tensors, not ") +
                c10::toString(type) + ". Reduce a sum, or convert the tensor.");
  }
}

void reduce_in_rank_order(ShmReduction reduction, at::ScalarType type, const std::vector<const std::byte*>& parts,
                          int64_t count, std::byte* out) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, type, "reduce_in_rank_order",
                             [&] { reduce_type<scalar_t>(reduction, parts, count, out); });
}

}  // namespace levin
