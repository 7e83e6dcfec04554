// What the kernel says about a process in /proc/PID/stat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace levin {

struct ProcessStat {
  bool ended = false;  // and its parent has not noticed yet
  std::string start;   // clock ticks after the machine's start
};

/// Unset if there is no such process, or no /proc.
[[nodiscard]] std::optional<ProcessStat> process_stat(int64_t pid);

}  // namespace levin
