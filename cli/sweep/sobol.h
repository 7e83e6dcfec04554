// Sobol's sequence: points that fill a cube more evenly than random ones.
#pragma once

#include <cstdint>

namespace levin {

/// Direction numbers are there for so many dimensions.
inline constexpr int kSobolDimensions = 21;

/// The coordinate of point `index` (from 0, whose point is all zeros) in `dimension` (from 0), in [0, 1), in the order
/// of Antonov and Saleev. `shift`: the bits that flip (a digital shift keeps the points as even as they are).
[[nodiscard]] double sobol(uint32_t index, int dimension, uint32_t shift = 0);

}  // namespace levin
