// Collectives for everything but gradients: small messages over Gloo, on CPU tensors. Hides c10d. Every function must
// be called by every rank, in the same order, on one thread; it blocks until all have called it, and throws RankError
// if one does not within the timeout or its connection breaks.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "levin/strategies/process/rank_error.h"
#include "levin/strategies/strategy.h"
#include "levin/strategies/world.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace levin {

/// Waits until `work` of `group` is done; if it fails, throws a RankError that names this rank and `what`.
void wait_for(c10d::Work& work, const c10d::ProcessGroup& group, const std::string& what,
              const std::string& advice = "Another rank ended or hangs; see its output.");

class Collectives {
 public:
  /// Connects to the other ranks through the store at world.master_address; waits for `timeout` at most.
  Collectives(const World& world, std::chrono::milliseconds timeout);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] const World& world() const;

  /// Reduces a CPU tensor of any shape into a new one.
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp op);
  /// The same through a group of its own, over memory that the ranks of a machine share, where they can; gloo between
  /// machines. The first call makes the group.
  [[nodiscard]] at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op);
  /// (size, …): every rank's tensor, all of the same shape and type, in rank order.
  [[nodiscard]] at::Tensor gather(const at::Tensor& value);
  /// The same on rank 0 only; undefined on the others. The bytes that a rank sends do not grow with the world size.
  [[nodiscard]] at::Tensor gather_on_rank_zero(const at::Tensor& value);
  /// Every rank's text, in rank order; lengths may differ. If all are equal, this costs one small reduction.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);
  /// Every line that some rank has, once, in order.
  [[nodiscard]] std::string merge_lines(const std::string& text);
  /// Rank 0's text.
  [[nodiscard]] std::string broadcast(const std::string& text);
  void barrier();

  /// Sets the longest time that a call waits.
  void set_timeout(std::chrono::milliseconds timeout);

  /// A process group of the same ranks for tensors on `device`, one for each `name`, made by the first call. `backend`:
  /// gloo; nccl, which is for GPUs and is part of the CUDA component; shm, which is for CPUs of one host; auto, which
  /// is shm on a CPU where ranks share hosts and memory, with gloo between hosts, and gloo otherwise. Throws
  /// ConfigError where the backend cannot be had.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> group(const std::string& name, const std::string& backend,
                                                             at::Device device);

 private:
  [[nodiscard]] bool same_on_all(const std::string& text);

  struct Groups;
  std::unique_ptr<Groups> groups_;
};

}  // namespace levin
