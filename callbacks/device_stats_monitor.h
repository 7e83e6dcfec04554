// Logs the machine's state every log_every_n_steps: CPU and memory from /proc, GPUs from NVML and LibTorch's
// allocator.
//
//   DeviceStatsMonitor.on_train_batch_start/cpu_percent, …/process_rss_bytes, …/gpu_utilization_percent,
//   …/allocated_bytes.all.current
//
// Each rank reads its own GPU; only rank 0 has loggers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/callbacks/cpu_stats.h"
#include "levin/callbacks/nvml.h"
#include "levin/core/fields.h"
#include "levin/trainer/callback.h"

namespace levin {

struct DeviceStatsMonitorOptions {
  std::optional<bool> cpu_stats = std::nullopt;  // unset: where the training runs on the CPU
  std::vector<std::string> filter_keys = {};     // empty: all

  template <class = void>
  static auto fields() {
    using O = DeviceStatsMonitorOptions;
    return levin::fields(
        field("cpu_stats", &O::cpu_stats,
              "write figures of the CPU and the process; null: if training runs on the CPU"),
        field("filter_keys", &O::filter_keys, "write only these, e.g. [cpu_percent, process_rss_bytes]; empty: all"));
  }
};

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

  /// All current figures, by short name.
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
