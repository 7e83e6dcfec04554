// The ranks of strategies with one process per device.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/strategies/process/rank_error.h"
#include "levin/strategies/strategy.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace levin {

/// Waits until `work` of `group` is done; if it fails, throws a RankError that names this rank and `what`.
void wait_for(c10d::Work& work, const c10d::ProcessGroup& group, const std::string& what,
              const std::string& advice = "Another rank ended or hangs; see its output.");

/// The ranks of a run, connected through process groups: small messages over Gloo, on CPU tensors. Hides c10d.
class ProcessRanks final : public RankCollectives {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

  /// `startup`: how long ranks wait for each other until first_step_done().
  ProcessRanks(std::string backend, Seconds timeout, Seconds startup);
  ~ProcessRanks() override;

  [[nodiscard]] bool is_distributed() const override { return true; }
  void join(const World& world) override;
  [[nodiscard]] World world() const override { return world_; }
  [[nodiscard]] int64_t rank() const override { return world_.rank; }
  [[nodiscard]] int64_t world_size() const override { return world_.size; }
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp op) override;
  [[nodiscard]] at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op) override;
  [[nodiscard]] at::Tensor sum_on_device(const at::Tensor& value) override;
  [[nodiscard]] bool any(bool value) override;
  void barrier() override;
  [[nodiscard]] at::Tensor gather(const at::Tensor& value) override;
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override;
  [[nodiscard]] std::string merge_lines(const std::string& text) override;
  [[nodiscard]] std::string broadcast(const std::string& text) override;
  void copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& named) override;

  /// Same as gather(), but returns an undefined tensor on ranks other than 0.
  [[nodiscard]] at::Tensor gather_on_rank_zero(const at::Tensor& value);
  /// Returns a group of all ranks for tensors on `device`, made by the first call with the same name. `backend`: gloo;
  /// nccl, which is for GPUs and is part of the CUDA component; shm, which is for CPUs of one host; auto, which is shm
  /// on a CPU where ranks share hosts and memory, with gloo between hosts, and gloo otherwise. Throws ConfigError where
  /// the backend cannot be had.
  [[nodiscard]] Group group(const std::string& name, const std::string& backend, at::Device device);
  /// Returns a group of all ranks for tensors on their devices; the same group for the same name.
  [[nodiscard]] Group group(const std::string& name);
  /// Returns a group of all ranks for small tensors on the CPU.
  [[nodiscard]] Group cpu_group(const std::string& name);
  /// Throws ConfigError naming the first parameter or buffer whose shape or type differs on another rank: before the
  /// first collective on tensors, which would hang or mix up weights.
  void check_same_shapes(const ModuleTensors& module);
  /// Replaces the values by rank 0's, in place.
  void broadcast_tensors(const Group& group, std::vector<at::Tensor> tensors) const;
  /// Sets the longest time that a call waits, from now on.
  void set_timeout(Seconds timeout);
  /// Returns how long ranks wait for each other after the first step.
  [[nodiscard]] Seconds timeout() const { return timeout_; }
  /// "rank 0 of 2"
  [[nodiscard]] std::string self() const { return rank_text(world_); }
  /// From now on ranks wait for each other only for `timeout`.
  void first_step_done();
  /// Same as above, for steps that themselves wait for other ranks: once all ranks have begun the first one. Every rank
  /// calls it.
  void begin_first_step();
  void await_first_step() { first_step_ = true; }

 private:
  struct Groups;
  [[nodiscard]] bool same_on_all(const std::string& text);

  std::string backend_;
  Seconds timeout_;
  Seconds startup_timeout_;
  World world_;
  std::shared_ptr<Groups> groups_;
  bool first_step_ = true;
};

/// Returns the ranks of a strategy that needs process groups. Throws ConfigError if they were replaced by others.
[[nodiscard]] ProcessRanks& process_ranks(RankCollectives& ranks);

/// Returns the tensors without their names.
[[nodiscard]] std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named);

}  // namespace levin
