// Batch normalization over the batches of all ranks, as in PyTorch's SyncBatchNorm: with few samples per rank, a rank's
// own statistics are noisy. LibTorch does not have that module, so the batch_norm operator itself is replaced, for all
// callers (libtorch/batch_norm.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <thread>
#include <unordered_map>

#include "levin/libtorch/batch_norm.h"

namespace c10d {
class ProcessGroup;
}
namespace torch::nn {
class Module;
}

namespace levin {

/// During its lifetime, every torch::batch_norm in training mode of the thread that made it normalizes by the mean and
/// variance of all ranks' batches (N over ranks, C, …), which also update the running statistics; instance_norm, which
/// LibTorch computes by batch_norm, does not change. On other threads these are the calls with a weight of the module,
/// and on GPUs, where backward has threads of its own, all calls. Every rank must call it equally often and in the same
/// order, and its backward too: one collective each. The gradients of weight and bias are this rank's contribution, for
/// the strategy to reduce. A rank's batch may be empty.
///
/// As in PyTorch, a layer in eval mode does not wait for other ranks, even if it has no running statistics and
/// normalizes by its batch. The operator is not told the mode: it is the mode of the layer that the weight belongs to,
/// or of the whole module for calls without a weight of the module.
class SyncBatchNorm {
 public:
  /// `group`: a separate group, so that its collectives do not interleave with the reduction of gradients. `module`
  /// must outlive this.
  SyncBatchNorm(c10::intrusive_ptr<c10d::ProcessGroup> group, const torch::nn::Module& module);

  /// From pause() to resume() no call waits for other ranks, which may have different numbers of batches.
  void pause() { paused_ = true; }
  void resume() { paused_ = false; }

 private:
  std::optional<at::Tensor> compute(const BatchNormCall& call) const;
  // Whether a call in training mode is over all ranks' batches.
  [[nodiscard]] bool applies_to(const BatchNormCall& call) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const torch::nn::Module& module_;
  std::unordered_map<const c10::TensorImpl*, const torch::nn::Module*> layers_;  // by their parameters
  std::thread::id thread_ = std::this_thread::get_id();
  bool paused_ = false;
  BatchNormScope scope_;
};

}  // namespace levin
