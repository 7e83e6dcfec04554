// What ranks say to each other besides gradients: small messages over Gloo, on CPU tensors. c10d stays inside.
// Every function is called by every rank, in the same order, on one thread; it blocks until all have arrived, and
// throws RankError if one does not within the timeout or its connection breaks.
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

/// Waits until `work` among `group` is done; its failure is a RankError that says which rank waited for what.
void wait_for(c10d::Work& work, const c10d::ProcessGroup& group, const std::string& what,
              const std::string& advice = "Another rank ended or hangs; see its output.");

class Collectives {
 public:
  /// Meets the others at world.master_address; waits `timeout` at most.
  Collectives(const World& world, std::chrono::milliseconds timeout);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] const World& world() const;

  /// Reduces a CPU tensor of any shape; the result is new.
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp op);
  /// (size, …): every rank's tensor of the same shape and type, rank by rank.
  [[nodiscard]] at::Tensor gather(const at::Tensor& value);
  /// The same on rank 0 alone; undefined on the others. What a rank sends does not grow with their number.
  [[nodiscard]] at::Tensor gather_on_rank_zero(const at::Tensor& value);
  /// Every rank's text, rank by rank; lengths may differ. Where all are the same, one small reduction.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);
  /// Every line that some rank has, once, in order.
  [[nodiscard]] std::string merge_lines(const std::string& text);
  /// Rank 0's text.
  [[nodiscard]] std::string broadcast(const std::string& text);
  void barrier();

  /// From now on a call waits this long at most.
  void set_timeout(std::chrono::milliseconds timeout);

  /// For messages about tensors on `device`: a group of its own among the same ranks for every `name`, made at the
  /// first call. `backend`: gloo or nccl, which is for GPUs and comes with the CUDA component. Throws ConfigError for
  /// nccl on a CPU.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> group(const std::string& name, const std::string& backend,
                                                             at::Device device);

 private:
  [[nodiscard]] bool same_on_all(const std::string& text);

  struct Groups;
  std::unique_ptr<Groups> groups_;
};

}  // namespace levin
