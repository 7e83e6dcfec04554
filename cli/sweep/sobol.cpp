#include "levin/cli/sweep/sobol.h"

#include <array>
#include <cstddef>

namespace levin {

namespace {

struct Direction {
  uint32_t degree;      // of the primitive polynomial
  uint32_t polynomial;  // its inner coefficients as bits
  std::array<uint32_t, 7> first;
};

// Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections" (2008): dimensions 2 to 21.
constexpr std::array<Direction, kSobolDimensions - 1> kDirections{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

constexpr uint32_t kBits = 32;

std::array<uint32_t, kBits> direction_numbers(int dimension) {
  std::array<uint32_t, kBits> v{};
  if (dimension == 0) {
    for (uint32_t k = 0; k < kBits; ++k) v[k] = 1U << (kBits - 1 - k);
    return v;
  }
  const Direction& d = kDirections[static_cast<size_t>(dimension - 1)];
  for (uint32_t k = 0; k < kBits; ++k) {
    if (k < d.degree) {
      v[k] = d.first[k] << (kBits - 1 - k);
      continue;
    }
    v[k] = v[k - d.degree] ^ (v[k - d.degree] >> d.degree);
    for (uint32_t j = 1; j < d.degree; ++j) {
      if (((d.polynomial >> (d.degree - 1 - j)) & 1U) != 0) v[k] ^= v[k - j];
    }
  }
  return v;
}

}  // namespace

double sobol(uint32_t index, int dimension, uint32_t shift) {
  const auto v = direction_numbers(dimension);
  uint32_t gray = index ^ (index >> 1);
  uint32_t bits = shift;
  for (uint32_t k = 0; gray != 0; ++k, gray >>= 1) {
    if ((gray & 1U) != 0) bits ^= v[k];
  }
  return static_cast<double>(bits) / 4294967296.0;
}

}  // namespace levin
