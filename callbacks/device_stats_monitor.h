// Logs the machine's state every log_every_n_steps: CPU and memory from /proc, GPUs from NVML and LibTorch's
// allocator.
//
//   DeviceStatsMonitor.on_train_batch_start/cpu_percent, …/process_rss_bytes, …/gpu_utilization_percent,
//   …/allocated_bytes.all.current
//
// Each rank reads its own GPU; only rank 0 has loggers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/callbacks/nvml.h"
#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/metrics.h"

namespace levin {

/// Statistics from /proc about the machine and this process, under the names that DeviceStatsMonitor logs. Each read()
/// reads again. CPU time is relative to the previous read(); the first one returns the machine's since boot, and leaves
/// out the process's.
///   cpu_percent, cpu_vm_percent, cpu_swap_percent       of the machine, as psutil counts them; 0 to 100
///   process_cpu_percent                                  of one core: 200 is all the time of two cores
///   process_rss_bytes, process_vm_bytes, process_swap_bytes, process_threads
/// Statistics that the system does not provide are left out. `proc`: where /proc is, for tests.
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

/// Options of DeviceStatsMonitor.
struct DeviceStatsMonitorOptions {
  std::optional<bool> cpu_stats = std::nullopt;  // unset: where the training runs on the CPU
  std::vector<std::string> filter_keys = {};     // empty: all

  template <class = void>
  static auto fields() {
    using O = DeviceStatsMonitorOptions;
    return levin::fields(
        field("cpu_stats", &O::cpu_stats,
              "write statistics of the CPU and the process; null: if training runs on the CPU"),
        field("filter_keys", &O::filter_keys, "write only these, e.g. [cpu_percent, process_rss_bytes]; empty: all"));
  }
};

/// A callback that logs statistics of devices and processes. Every rank reads its own device; rank 0's statistics go to
/// its loggers. A GPU without NVML has only the allocator's statistics, with a warning.
class DeviceStatsMonitor final : public Callback {
 public:
  using Options = DeviceStatsMonitorOptions;
  explicit DeviceStatsMonitor(Defaults = {}) : DeviceStatsMonitor(DeviceStatsMonitorOptions()) {}
  explicit DeviceStatsMonitor(DeviceStatsMonitorOptions options);

  /// Throws ConfigError if the trainer has no logger.
  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) override;
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) override;
  void on_validation_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    write_evaluated(trainer, "on_validation_batch_start", false);
  }
  void on_validation_batch_end(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    write_evaluated(trainer, "on_validation_batch_end", true);
  }
  void on_test_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    write_evaluated(trainer, "on_test_batch_start", false);
  }
  void on_test_batch_end(Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) override {
    write_evaluated(trainer, "on_test_batch_end", true);
  }

  /// Returns all current statistics, by short name.
  [[nodiscard]] Metrics stats(const Trainer& trainer);

 private:
  void write(Trainer& trainer, const std::string& hook, int64_t step);
  void write_evaluated(Trainer& trainer, const std::string& hook, bool batch_ends);
  void check_filter(const Trainer& trainer);

  DeviceStatsMonitorOptions options_;
  CpuStats cpu_;
  std::shared_ptr<Nvml> gpu_ = nullptr;
  bool gpu_asked_ = false;
  int64_t started_step_ = -1;  // an accumulation window has one row at its start and one at its end
  int64_t evaluated_ = 0;      // batches of evaluations
};

}  // namespace levin
