// Sharded weights, gradients and optimizer states. By default nothing is sharded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace levin {

/// The range of a flattened parameter that a rank updates if the parameters are sharded.
struct PartPlace {
  int64_t begin = 0;
  int64_t size = 0;
  std::vector<int64_t> shape = {};  // of the whole parameter
};

class Sharding {
 public:
  virtual ~Sharding() = default;

  /// Whether each rank updates, and keeps optimizer state for, only a part of the weights.
  [[nodiscard]] virtual bool is_sharded() const { return false; }
  /// Whether this strategy shards modules; known before it is given one.
  [[nodiscard]] virtual bool shards_modules() const { return false; }
  /// Whether a rank also has only that part of the reduced gradients: a norm must then be computed over all ranks.
  [[nodiscard]] virtual bool has_sharded_gradients() const { return false; }
  /// Whether forward and backward gather weights, which means that no rank may skip one that others run, and that
  /// gradients are reduced in every backward.
  [[nodiscard]] virtual bool has_sharded_weights() const { return false; }
  /// Whether each rank writes its part to checkpoints.
  [[nodiscard]] virtual bool saves_shards() const { return false; }
  /// In a fit: from here to end_evaluation() all weights are unsharded on every rank, and a forward pass needs no
  /// collective, because ranks may have different numbers of batches. Every rank. Blocks until all arrive.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// From here to end_update() the module's parameters and their gradients are this rank's flat parts, which an
  /// optimizer updates. A parameter of which the rank has no part is empty and has no gradient.
  virtual void begin_update() {}
  /// `changed`: copies the ranks' updates to the unsharded weights, and blocks until all arrive. Every rank.
  virtual void end_update(bool /*changed*/) {}
  /// Unset for tensors that are not sharded.
  [[nodiscard]] virtual std::optional<PartPlace> place_of(const at::Tensor& /*parameter*/) const {
    return std::nullopt;
  }
  /// This rank's flat part of a sharded parameter, in the memory that it is stored in.
  [[nodiscard]] virtual at::Tensor part_of(const at::Tensor& parameter) const { return parameter; }
  /// The unsharded tensor, on the CPU, of which `part` is this rank's part, sharded like `parameter`. Blocks until all
  /// arrive.
  [[nodiscard]] virtual at::Tensor whole_of(const at::Tensor& /*parameter*/, const at::Tensor& part) { return part; }
  /// The same on rank 0 only, for a file; undefined on the others.
  [[nodiscard]] virtual at::Tensor whole_on_rank_zero(const at::Tensor& /*parameter*/, const at::Tensor& part) {
    return part;
  }
  /// The tensors that contain weights besides the module's own.
  [[nodiscard]] virtual std::vector<at::Tensor> held() const { return {}; }
  /// A short description of what is sharded; "" if nothing is.
  [[nodiscard]] virtual std::string sharding_text() const { return ""; }
};

}  // namespace levin
