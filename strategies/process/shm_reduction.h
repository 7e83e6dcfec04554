// Sums, products and extrema over the ranks' contributions, in the order of ranks: the same bits on every rank and in
// every run.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace levin {

/// As c10d's of the same names; average is for floating-point types.
enum class ShmReduction { sum, average, product, min, max };

/// Throws Error unless the type is a floating-point number, or an integer or bool and no average is asked for.
void check_reducible(ShmReduction reduction, at::ScalarType type);

/// out[i] = the reduction of parts[rank][i] over ranks, for `count` elements of a reducible type; `out` may be one of
/// the parts. Types of 16 bits are reduced as float and rounded once; bool is reduced as a truth value.
void reduce_in_rank_order(ShmReduction reduction, at::ScalarType type, const std::vector<const std::byte*>& parts,
                          int64_t count, std::byte* out);

}  // namespace levin
