// Strategies with one process per device: how their ranks connect and communicate. Each strategy defines how it treats
// weights and gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/strategies/process/process_ranks.h"
#include "levin/strategies/strategy.h"

namespace levin {

class SyncBatchNorm;

/// The base of strategies with one process per device, whose ranks are ProcessRanks.
class ParallelStrategy : public Strategy {
 public:
  void use_sync_batchnorm() override { sync_batchnorm_ = true; }
  void begin_evaluation() override;
  void end_evaluation() override;

 protected:
  ParallelStrategy(std::string backend, Seconds timeout, Seconds startup);
  ParallelStrategy(ParallelStrategy&&) noexcept;
  ~ParallelStrategy() override;

  /// Applies use_sync_batchnorm() to the module that was placed, until tear_down_batch_norm().
  void set_up_batch_norm(bool training);
  void tear_down_batch_norm();

 private:
  std::shared_ptr<SyncBatchNorm> batch_norm_;  // null: each rank uses its own statistics
  bool sync_batchnorm_ = false;
};

/// A placement that keeps the module it moves, whose normalization layers ParallelStrategy changes.
class RankPlacement : public DevicePlacement {
 public:
  void place(torch::nn::Module& module) override;
  /// Returns the module; null until place() is called.
  [[nodiscard]] torch::nn::Module* module() const { return module_; }

 protected:
  void keep(torch::nn::Module& module) { module_ = &module; }

 private:
  torch::nn::Module* module_ = nullptr;
};

/// The help text of the option process_group_backend.
inline constexpr const char* kProcessGroupBackends =
    "gloo; shm, memory that the ranks of one machine share; nccl; or auto: what suits the device and the machines";
[[nodiscard]] bool is_process_group_backend(const std::string& name);

/// Returns why a parameter's gradient cannot be reduced, and what to do.
[[nodiscard]] std::string sparse_gradient_text(const std::string& parameter);

}  // namespace levin
