// Collectives for everything but gradients. With a world size of 1 they are identities. Every function that blocks must
// be called by every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/strategies/world.h"

namespace levin {

enum class ReduceOp { mean, sum, min, max };

class RankCollectives {
 public:
  virtual ~RankCollectives() = default;

  [[nodiscard]] virtual World world() const { return {}; }
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t world_size() const = 0;

  /// Reduces over all ranks; every rank gets the result. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor reduce(const at::Tensor& value, ReduceOp op) = 0;

  /// The sum over all ranks of a tensor of the same type and shape on each, on the device of this rank's tensor, which
  /// may be the CPU on some ranks only. Every rank. With NCCL it is summed after the device's work so far, and the host
  /// does not wait; otherwise as reduce().
  [[nodiscard]] virtual at::Tensor sum_on_device(const at::Tensor& value) { return reduce(value, ReduceOp::sum); }

  /// As reduce(), of a CPU tensor, for what ranks tell each other in every step: those of one machine through memory
  /// that they share, where they can.
  [[nodiscard]] virtual at::Tensor reduce_in_step(const at::Tensor& value, ReduceOp op) { return reduce(value, op); }

  /// True on every rank if it is true on any. Blocks until all arrive.
  [[nodiscard]] virtual bool any(bool value) = 0;

  virtual void barrier() = 0;

  /// (world_size, …): the CPU tensor of every rank, rank by rank; same shape and type on all. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor gather(const at::Tensor& value) { return value.unsqueeze(0); }
  /// Every rank's text, rank by rank. Blocks until all arrive.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) { return {text}; }
  /// Every line that some rank has, once, the same on all ranks. Blocks until all arrive.
  [[nodiscard]] virtual std::string merge_lines(const std::string& text) { return text; }
  /// Rank 0's text. Blocks until all arrive.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) { return text; }
  /// Replaces the values of these tensors, which are on the strategy's device, by rank 0's, in place. Throws
  /// ConfigError on every rank if their names, shapes or types differ between ranks. Blocks until all arrive.
  virtual void copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& /*named*/) {}
};

}  // namespace levin
