// LibTorch's settings that a run may change: TrainerOptions::benchmark, deterministic, float32_matmul_precision and
// num_threads.
#pragma once

#include <optional>

#include "levin/strategies/device/op_threads.h"
#include "levin/trainer/plan/run_plan.h"

namespace levin {

/// A scope with the run's settings. Its destructor restores what it has changed.
class BackendSettings {
 public:
  BackendSettings(const TrainerOptions& options, const RunPlan& plan);
  ~BackendSettings();
  BackendSettings(const BackendSettings&) = delete;
  BackendSettings& operator=(const BackendSettings&) = delete;

 private:
  bool sets_deterministic_;
  bool outer_deterministic_, outer_warns_only_;
  bool sets_benchmark_;
  bool outer_benchmark_;
  bool sets_precision_;
  MatmulPrecision outer_precision_;
  std::optional<OpThreads> threads_ = std::nullopt;
};

}  // namespace levin
