// Weights, gradients and optimizer states of which each rank has a part. By default nothing is sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace levin {

/// The stretch of a parameter, laid flat, that a rank updates where ranks share them out.
struct PartPlace {
  int64_t begin = 0;
  int64_t size = 0;
  std::vector<int64_t> shape = {};  // of the whole parameter
};

class Sharding {
 public:
  virtual ~Sharding() = default;

  /// Whether each rank updates, and keeps optimizers' state for, a part of the weights only.
  [[nodiscard]] virtual bool is_sharded() const { return false; }
  /// Whether it is one that shards modules, before it has been given one.
  [[nodiscard]] virtual bool shards_modules() const { return false; }
  /// Whether a rank has only that part of the gradients too, once they are reduced: a norm is then over all ranks.
  [[nodiscard]] virtual bool has_sharded_gradients() const { return false; }
  /// Whether also forward and backward gather weights, so that no rank may leave out one that others run, and
  /// gradients are reduced in every backward.
  [[nodiscard]] virtual bool has_sharded_weights() const { return false; }
  /// Whether each rank writes its part to checkpoints.
  [[nodiscard]] virtual bool saves_shards() const { return false; }
  /// In a fit: from here to end_evaluation() all weights are whole on every rank, and reading them is no message,
  /// because ranks may have different numbers of batches. Every rank. Blocks until all arrive.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// From here to end_update() the module's parameters and their gradients are this rank's part of them, laid flat:
  /// what an optimizer updates. Of a parameter that it has no part of, no numbers and no gradient.
  virtual void begin_update() {}
  /// `changed`: the unsharded weights get what the ranks have updated. Every rank. Blocks until all arrive, if so.
  virtual void end_update(bool /*changed*/) {}
  /// Unset for tensors that are whole on every rank.
  [[nodiscard]] virtual std::optional<PartPlace> place_of(const at::Tensor& /*parameter*/) const {
    return std::nullopt;
  }
  /// This rank's part of a parameter that has a place: its own memory, flat.
  [[nodiscard]] virtual at::Tensor part_of(const at::Tensor& parameter) const { return parameter; }
  /// The whole, on the CPU, of what every rank has a part of as it has of `parameter`. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor whole_of(const at::Tensor& /*parameter*/, const at::Tensor& part) { return part; }
  /// The same on rank 0 alone, for a file; undefined on the others.
  [[nodiscard]] virtual at::Tensor whole_on_rank_zero(const at::Tensor& /*parameter*/, const at::Tensor& part) {
    return part;
  }
  /// The tensors in which it holds weights beside the module's own.
  [[nodiscard]] virtual std::vector<at::Tensor> held() const { return {}; }
  /// What ranks share out, in a few words; "" if nothing.
  [[nodiscard]] virtual std::string sharding_text() const { return ""; }
};

}  // namespace levin
