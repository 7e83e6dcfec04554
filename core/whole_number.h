#pragma once

#include <cmath>

namespace levin {

/// Whether an int64_t is this number to the last digit: whole, and less than 9e15.
[[nodiscard]] inline bool is_whole_number(double value) {
  return std::abs(value) < 9e15 && std::floor(value) == value;
}

}  // namespace levin
