// Figures of /proc about the machine and this process, under the names that DeviceStatsMonitor logs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/trainer/metrics.h"

namespace levin {

/// Each call reads again. Shares of CPU time are since the previous call; the first call returns the machine's since
/// boot, and none of the process.
///   cpu_percent, cpu_vm_percent, cpu_swap_percent       of the machine, as psutil counts them; 0 to 100
///   process_cpu_percent                                  of one core: 200 is two cores' whole time
///   process_rss_bytes, process_vm_bytes, process_swap_bytes, process_threads
/// Figures that the system does not provide are left out. `proc`: where /proc is, for tests.
class CpuStats {
 public:
  explicit CpuStats(std::string proc = "/proc") : proc_(std::move(proc)) {}

  [[nodiscard]] Metrics read();

 private:
  void read_processor(Metrics& metrics);
  void read_memory(Metrics& metrics) const;
  void read_process(Metrics& metrics);

  std::string proc_;
  double busy_ = 0;  // of all processors since boot, in the kernel's ticks
  double all_ = 0;
  double process_seconds_ = 0;  // processor time of this process
  std::chrono::steady_clock::time_point process_read_ = {};
};

}  // namespace levin
