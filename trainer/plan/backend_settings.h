// LibTorch's settings that a run may change (TrainerOptions::benchmark, deterministic, float32_matmul_precision,
// num_threads): set while it runs, and restored when it ends.
#pragma once

#include <optional>

#include "levin/strategies/device/op_threads.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

class BackendSettings {
 public:
  BackendSettings(const TrainerOptions& options, const RunPlan& plan);
  ~BackendSettings();
  BackendSettings(const BackendSettings&) = delete;
  BackendSettings& operator=(const BackendSettings&) = delete;

 private:
  bool outer_deterministic_, outer_warns_only_;
  bool sets_benchmark_;
  bool outer_benchmark_;
  bool sets_precision_;
  MatmulPrecision outer_precision_;
  std::optional<OpThreads> threads_ = std::nullopt;
};

}  // namespace levin
