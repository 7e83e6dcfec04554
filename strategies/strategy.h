// Where a run computes and how its ranks agree. A world of one is an ordinary strategy whose collectives are
// identities, so that loops never ask how many ranks there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace levin {

enum class ReduceOp { mean, sum, min, max };

class Strategy {
 public:
  virtual ~Strategy() = default;

  static const char* registry_name() { return "strategy"; }

  [[nodiscard]] virtual std::string name() const = 0;
  /// The device that this rank's module and batches live on.
  [[nodiscard]] virtual at::Device device() const = 0;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t world_size() const = 0;

  /// Adds the gradients of `loss` to the parameters. `sync`: they are also made equal on all ranks; false inside an
  /// accumulation window. Every rank.
  virtual void backward(const at::Tensor& loss, bool sync) = 0;

  /// Reduces over all ranks; every rank gets the result. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor reduce(const at::Tensor& value, ReduceOp op) = 0;

  /// True on every rank if it is true on any. Blocks until all arrive.
  [[nodiscard]] virtual bool any(bool value) = 0;

  virtual void barrier() = 0;
};

}  // namespace levin
