// How much memory this process holds, as the kernel counts it.
#pragma once

#include <cstdint>

namespace levin {

struct ProcessMemory {
  int64_t resident = 0;  // bytes in physical memory now
  int64_t peak = 0;      // the most there ever was
};

/// From /proc/self/status; zeros where it cannot be read.
[[nodiscard]] ProcessMemory process_memory();

}  // namespace levin
