// Batch normalization over the batches of all ranks, as PyTorch's SyncBatchNorm: with a few samples on each rank its
// own statistics are noise. LibTorch has neither that module nor a way to put one in the place of another inside a
// module's own code, so it is the operator that changes: batch_norm itself, whoever calls it.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace levin {

/// While one lives, one at a time, every torch::batch_norm in training mode in this process normalizes by the mean and
/// variance of all ranks' batches (N over ranks, C, …), which also move the running statistics; in evaluation nothing
/// changes, nor in instance_norm, which LibTorch computes by batch_norm. Every rank calls it as often and in the same
/// order, and its backward too: one message each. The gradients of weight and bias are this rank's part, for the
/// strategy to reduce. A rank's batch may be empty.
class SyncBatchNorm {
 public:
  /// `group`: of its own, so that its messages do not get between those that reduce gradients.
  explicit SyncBatchNorm(c10::intrusive_ptr<c10d::ProcessGroup> group);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace levin
