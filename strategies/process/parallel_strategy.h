// The base of strategies with one process per device: how their ranks connect and communicate. Each strategy defines
// how it treats weights and gradients.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/core/duration.h"
#include "levin/strategies/process/collectives.h"
#include "levin/strategies/strategy.h"

namespace levin {

class SyncBatchNorm;

class ParallelStrategy : public Strategy {
 public:
  [[nodiscard]] at::Device device() const override { return device_; }
  void use_device(at::Device device) override { device_ = device; }
  [[nodiscard]] std::shared_ptr<DeviceCopier> make_copier() override;
  [[nodiscard]] bool is_distributed() const override { return true; }
  [[nodiscard]] World world() const override { return world_; }
  [[nodiscard]] int64_t rank() const override { return world_.rank; }
  [[nodiscard]] int64_t world_size() const override { return world_.size; }
  void join(const World& world) override;
  void use_sync_batchnorm() override { sync_batchnorm_ = true; }
  void place(torch::nn::Module& module) override;
  void begin_evaluation() override;
  void end_evaluation() override;
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp op) override;
  [[nodiscard]] at::Tensor sum_on_device(const at::Tensor& value) override;
  [[nodiscard]] at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op) override;
  [[nodiscard]] bool any(bool value) override;
  void barrier() override;
  [[nodiscard]] at::Tensor gather(const at::Tensor& value) override;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override;
  [[nodiscard]] std::string merge_lines(const std::string& text) override;
  [[nodiscard]] std::string broadcast(const std::string& text) override;
  void copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& named) override;

 protected:
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

  /// `startup`: how long ranks wait for each other until first_step_done().
  ParallelStrategy(std::string backend, Seconds timeout, Seconds startup);
  ParallelStrategy(ParallelStrategy&&) noexcept;
  ~ParallelStrategy() override;

  /// A group of all ranks for tensors on their devices; the same for the same name.
  [[nodiscard]] Group group(const std::string& name);
  /// The same for small tensors on the CPU.
  [[nodiscard]] Group cpu_group(const std::string& name);
  /// Throws ConfigError naming the first parameter or buffer whose shape or type differs on another rank: before the
  /// first collective on tensors, which would hang or mix up weights.
  void check_same_shapes(const ModuleTensors& module);
  /// Replaces the values by rank 0's, in place.
  void broadcast_tensors(const Group& group, std::vector<at::Tensor> tensors);
  /// For set_up_batch_norm(): the module that place() is given.
  void keep_module(torch::nn::Module& module) { module_root_ = &module; }
  /// Applies use_sync_batchnorm() to the module that was placed, until tear_down_batch_norm().
  void set_up_batch_norm(bool training);
  void tear_down_batch_norm();
  /// How long ranks wait for each other after the first step.
  [[nodiscard]] Seconds timeout() const { return timeout_; }
  /// "rank 0 of 2"
  [[nodiscard]] std::string self() const;
  /// As gather(), but only on rank 0.
  [[nodiscard]] at::Tensor gather_on_rank_zero(const at::Tensor& value);
  /// From now on ranks wait for each other only for `timeout`.
  void first_step_done();
  /// The same if a step itself waits for other ranks, once all ranks have begun the first one. Every rank.
  void begin_first_step();
  void await_first_step() { first_step_ = true; }

 private:
  std::string backend_;
  Seconds timeout_;
  Seconds startup_timeout_;
  World world_;
  at::Device device_ = at::kCPU;
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<SyncBatchNorm> batch_norm_;  // null: each rank uses its own statistics
  torch::nn::Module* module_root_ = nullptr;   // from place() to tear_down_batch_norm()
  bool sync_batchnorm_ = false;
  bool first_step_ = true;
};

/// For the options of strategies.
inline constexpr const char* kProcessGroupBackends =
    "gloo; shm, memory that the ranks of one machine share; nccl; or auto: what suits the device and the machines";
[[nodiscard]] bool is_process_group_backend(const std::string& name);

/// Why a parameter's gradient cannot be reduced, and what to do.
[[nodiscard]] std::string sparse_gradient_text(const std::string& parameter);

/// The tensors without their names.
[[nodiscard]] std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named);

}  // namespace levin
