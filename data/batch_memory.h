// Where the tensors of a batch are allocated. A run that copies batches to a device ahead of time has its loaders
// allocate them in pinned memory (Loader::pin_memory), from which the device copies them without an extra copy.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include "levin/data/batch.h"

namespace levin {

/// While it lives, empty_batch() on this thread allocates in pinned memory, or with `pinned` false in ordinary memory.
class PinnedBatches {
 public:
  explicit PinnedBatches(bool pinned);
  ~PinnedBatches();
  PinnedBatches(const PinnedBatches&) = delete;
  PinnedBatches& operator=(const PinnedBatches&) = delete;

 private:
  bool before_;
};

/// Returns at::empty() for a tensor of a batch, in pinned memory within PinnedBatches; in ordinary memory if pinned
/// memory runs out or the tensor is not on the CPU. Meant for get_batch() of data sets and for collate functions.
[[nodiscard]] at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Copies the tensors that are on the CPU and not pinned to pinned memory, until pinned memory runs out.
void pin_tensors(Batch& batch);

}  // namespace levin
