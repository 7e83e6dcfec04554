// LibTorch's process-wide settings that a run may change (TrainerOptions::benchmark, float32_matmul_precision): set
// while it runs, as they were before when it ends.
#pragma once

#include <array>

#include "levin/trainer/plan/run_plan.h"

namespace levin {

class BackendSettings {
 public:
  explicit BackendSettings(const RunPlan& plan);
  ~BackendSettings();
  BackendSettings(const BackendSettings&) = delete;
  BackendSettings& operator=(const BackendSettings&) = delete;

 private:
  bool sets_benchmark_;
  bool outer_benchmark_;
  bool sets_precision_;
  MatmulPrecision outer_precision_;
};

}  // namespace levin
