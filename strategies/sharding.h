// Sharded weights, gradients and optimizer states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/strategies/strategy_part.h"

namespace levin {

/// The range of a tensor that a rank holds if tensors are sharded: offsets and sizes by dimension of `view`, the shape
/// in which the full tensor is cut. fsdp cuts flattened parameters: `view` then has one dimension. A tensor that is cut
/// along its own dimensions has the view `shape`.
struct ShardRange {
  std::vector<int64_t> offsets = {};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> view = {};
  std::vector<int64_t> shape = {};  // of the full tensor

  /// Returns a range of the flattened tensor.
  [[nodiscard]] static ShardRange flat(int64_t offset, int64_t size, std::vector<int64_t> shape);
  /// Returns the number of elements.
  [[nodiscard]] int64_t numel() const;
  /// Returns the first element's index in the flattened tensor.
  [[nodiscard]] int64_t flat_offset() const;
  /// Returns the range of `full`, a tensor with as many elements as `shape`: a view, if `full` is contiguous. Its shape
  /// is `sizes`.
  [[nodiscard]] at::Tensor of(const at::Tensor& full) const;
};

/// What each rank stores of the weights, gradients and optimizer states: by default all of them. Every rank calls the
/// functions that block, in the same order; they throw RankError as collectives do.
class Sharding : public StrategyPart {
 public:
  /// Returns whether each rank updates, and keeps optimizer state for, only a shard of the weights.
  [[nodiscard]] virtual bool is_sharded() const { return false; }
  /// Returns whether this strategy shards modules; known before it is given one.
  [[nodiscard]] virtual bool shards_modules() const { return false; }
  /// Returns whether a rank also has only that shard of the reduced gradients: a norm must then be computed over all
  /// ranks.
  [[nodiscard]] virtual bool has_sharded_gradients() const { return false; }
  /// Returns whether forward and backward gather weights, which means that no rank may skip a pass that others run, and
  /// that gradients are reduced in every backward.
  [[nodiscard]] virtual bool has_sharded_weights() const { return false; }
  /// Returns whether each rank writes its shards to checkpoints.
  [[nodiscard]] virtual bool saves_shards() const { return false; }
  /// From here to end_update() the module's parameters and their gradients are this rank's shards, which an optimizer
  /// updates. A parameter of which the rank has no shard is empty and has no gradient.
  virtual void begin_update() {}
  /// `changed`: copies the ranks' updates to the full weights, and blocks until all arrive. Every rank calls it.
  virtual void end_update(bool /*changed*/) {}
  /// Returns this rank's range of a parameter; unset for tensors that are not sharded.
  [[nodiscard]] virtual std::optional<ShardRange> shard_range(const at::Tensor& /*parameter*/) const {
    return std::nullopt;
  }
  /// Returns this rank's shard of a sharded parameter, in the memory that it is stored in.
  [[nodiscard]] virtual at::Tensor local_shard(const at::Tensor& parameter) const { return parameter; }
  /// Returns the full tensor, on the CPU, of which `shard` is this rank's shard, sharded like `parameter`. Blocks until
  /// all arrive.
  [[nodiscard]] virtual at::Tensor full_tensor(const at::Tensor& /*parameter*/, const at::Tensor& shard) {
    return shard;
  }
  /// Returns the full tensor on rank 0 only, for a file; undefined on the other ranks. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor full_tensor_on_rank_zero(const at::Tensor& /*parameter*/, const at::Tensor& shard) {
    return shard;
  }
  /// Returns the tensors that contain weights besides the module's own.
  [[nodiscard]] virtual std::vector<at::Tensor> held() const { return {}; }
  /// Returns a short description of what is sharded; "" if nothing is.
  [[nodiscard]] virtual std::string sharding_text() const { return ""; }
};

/// Returns the full value of a module's parameter. Where it is sharded it is gathered on rank 0 (undefined on the other
/// ranks), so every rank calls it; otherwise it is the parameter's own, detached.
[[nodiscard]] at::Tensor full_parameter(Sharding& sharding, const at::Tensor& parameter);

}  // namespace levin
