// How many cores this process may use: the machine's, limited by affinity (taskset, Slurm) and the control groups of
// containers.
#pragma once

#include <cstdint>
#include <string>

namespace levin {

struct UsableCores {
  int64_t count = 1;
  std::string limit;  // the cause of the limit, for messages: "cpu.max of /sys/fs/cgroup/pod1"; "": nothing
};

/// Never below 1. `proc` and `sys` are for tests.
[[nodiscard]] UsableCores usable_cores(const std::string& proc = "/proc", const std::string& sys = "/sys");

}  // namespace levin
