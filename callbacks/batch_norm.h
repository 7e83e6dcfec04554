// Helpers for callbacks that handle BatchNorm layers.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <vector>

namespace torch::nn {
class Module;
}

namespace levin {
class RankCollectives;
}

namespace levin::detail {

/// Whether `module` is LibTorch's BatchNorm1d, 2d or 3d, or has running statistics as they do, such as a batch norm of
/// an exported program.
[[nodiscard]] bool is_batch_norm(const torch::nn::Module& module);

/// During its lifetime, BatchNorm layers below `module` in training mode compute their statistics again, as the mean
/// over the batches they see. Layers in eval mode keep theirs.
class BatchNormRecount {
 public:
  explicit BatchNormRecount(torch::nn::Module& module);
  ~BatchNormRecount();
  BatchNormRecount(const BatchNormRecount&) = delete;
  BatchNormRecount& operator=(const BatchNormRecount&) = delete;

  /// Averages the statistics over all ranks' batches, once the layers have seen their batches. Every rank calls it.
  void average(RankCollectives& ranks) const;

  /// Whether the module has such a layer.
  [[nodiscard]] bool is_needed() const { return !restore_.empty(); }

 private:
  std::vector<std::function<void()>> restore_;  // restores a layer's momentum
  std::vector<at::Tensor> statistics_;          // running mean and variance of each layer
};

}  // namespace levin::detail
