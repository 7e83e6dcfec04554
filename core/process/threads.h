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

/// Sets how many threads OpenMP uses for the calling thread alone. at::set_num_threads() would also change the number
/// for other threads. LibTorch initializes a thread's number at its first use: call at::get_num_threads() before.
void set_openmp_threads(int count);

}  // namespace levin
