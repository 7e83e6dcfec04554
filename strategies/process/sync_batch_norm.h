// Batch normalization over the batches of all ranks, as in PyTorch's SyncBatchNorm: with few samples per rank, a rank's
// own statistics are noisy. LibTorch has neither that module nor a way to replace submodules that a module's code uses,
// so the batch_norm operator itself is replaced, for all callers.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace levin {

/// During its lifetime (one at a time), every torch::batch_norm in training mode in this process normalizes by the mean
/// and variance of all ranks' batches (N over ranks, C, …), which also update the running statistics; evaluation does
/// not change, nor does instance_norm, which LibTorch computes by batch_norm. Every rank must call it equally often and
/// in the same order, and its backward too: one collective each. The gradients of weight and bias are this rank's
/// contribution, for the strategy to reduce. A rank's batch may be empty.
class SyncBatchNorm {
 public:
  /// `group`: a separate one, so that its collectives do not interleave with those that reduce gradients.
  explicit SyncBatchNorm(c10::intrusive_ptr<c10d::ProcessGroup> group);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace levin
