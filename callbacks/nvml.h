// Statistics of a GPU from NVIDIA's driver, through NVML. The driver's libraries are loaded at first use, so nothing
// links to them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "levin/trainer/metrics.h"

namespace levin {

/// One GPU, as NVML sees it. The members may be called from any thread.
class Nvml {
 public:
  /// The GPU that CUDA calls `device_index` in this process (CUDA_VISIBLE_DEVICES counts).
  /// Throws Error if the driver or the GPU is missing.
  explicit Nvml(int64_t device_index);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// "NVIDIA H200"
  [[nodiscard]] std::string name() const;
  /// gpu_utilization_percent, gpu_memory_utilization_percent (fraction of the time in which memory was read or
  /// written), gpu_memory_used_bytes, gpu_memory_total_bytes, gpu_temperature_celsius, gpu_power_watts; statistics that
  /// a GPU does not provide are left out.
  [[nodiscard]] Metrics read() const;

 private:
  struct Driver;
  std::shared_ptr<Driver> driver_;
};

}  // namespace levin
