// Collectives for everything but gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/strategies/mesh.h"
#include "levin/strategies/strategy_part.h"

namespace levin {

/// The operation of a reduction over ranks.
enum class ReduceOp { mean, sum, min, max };

/// The communication of the ranks: by default of one process, whose collectives return their input. The caller chooses
/// the operation, and the strategy what carries it; the device of the caller's tensor never does, because it may differ
/// between ranks (a rank without a gradient has made a 0 on the CPU). Functions that block must be called by every
/// rank, in the same order, on one thread; they throw RankError if another rank has ended or does not answer within the
/// timeout.
class RankCollectives : public StrategyPart {
 public:
  /// Returns whether it requires one process per device: the trainer starts them and then calls join().
  [[nodiscard]] virtual bool is_distributed() const { return false; }
  /// Connects to the other ranks. Every rank calls it once, before anything else.
  virtual void join(const World& /*world*/) {}
  [[nodiscard]] virtual World world() const { return {}; }
  [[nodiscard]] virtual int64_t rank() const { return 0; }
  /// Returns the number of processes; for the number of data-parallel replicas see mesh().
  [[nodiscard]] virtual int64_t world_size() const { return 1; }
  /// Returns the ranks by dimension; by default all of them are data-parallel replicas.
  [[nodiscard]] virtual Mesh mesh() const { return {rank(), {{"data", world_size()}}}; }

  /// Reduces over all ranks through the control group, on the host; every rank gets the result, on its value's device.
  /// For what ranks rarely exchange. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor reduce(const at::Tensor& value, ReduceOp /*op*/) { return value; }
  /// Same as reduce() of a CPU tensor, for the flags that ranks exchange in every step: uses memory that the ranks of
  /// one machine share, where they can.
  [[nodiscard]] virtual at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op) { return reduce(value, op); }
  /// Returns the sum over all ranks, on the strategy's device, of a tensor of the same type and shape on each; the
  /// result is on the device of this rank's tensor. With NCCL it is summed after the device's work so far, and the host
  /// does not wait; otherwise as reduce_in_step(). Every rank calls it.
  [[nodiscard]] virtual at::Tensor sum_on_device(const at::Tensor& value) { return reduce(value, ReduceOp::sum); }

  /// Returns true on every rank if it is true on any. Blocks until all arrive.
  [[nodiscard]] virtual bool any(bool value) { return value; }
  /// Blocks until all arrive.
  virtual void barrier() {}

  /// (world_size, …): the CPU tensor of every rank, rank by rank; same shape and type on all. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor gather(const at::Tensor& value) { return value.unsqueeze(0); }
  /// Returns every rank's text, rank by rank. Blocks until all arrive.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) { return {text}; }
  /// Returns every line that some rank has, once, the same on all ranks. Blocks until all arrive.
  [[nodiscard]] virtual std::string merge_lines(const std::string& text) { return text; }
  /// Returns rank 0's text. Blocks until all arrive.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) { return text; }
  /// Replaces the values of these tensors, which are on the strategy's device, by rank 0's, in place. Throws
  /// ConfigError on every rank if their names, shapes or types differ between ranks. Blocks until all arrive.
  virtual void copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& /*named*/) {}
};

}  // namespace levin
