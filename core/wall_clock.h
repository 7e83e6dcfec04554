// The time of day as a number, for records that other programs read.
#pragma once

#include <chrono>

namespace levin {

[[nodiscard]] inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace levin
