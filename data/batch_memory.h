// Where the tensors of a batch are made. A run that copies batches to a device ahead has its loaders make them in
// pinned memory (Loader::pin_memory), from which the device copies them; elsewhere they would be copied there first.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/data/batch.h"

namespace levin {

/// While it lives, empty_batch() of this thread makes tensors in pinned memory, or again not.
class PinnedBatches {
 public:
  explicit PinnedBatches(bool pinned);
  ~PinnedBatches();
  PinnedBatches(const PinnedBatches&) = delete;
  PinnedBatches& operator=(const PinnedBatches&) = delete;

 private:
  bool before_;
};

/// at::empty for a tensor of a batch, in pinned memory within PinnedBatches. In ordinary memory if there is no pinned
/// memory left, and for a tensor that is not on the CPU. For get_batch() of data sets and for collate functions.
[[nodiscard]] at::Tensor empty_batch(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Copies the tensors of the batch that are on the CPU, and not pinned, to pinned memory, as long as there is some.
void pin_tensors(Batch& batch);

}  // namespace levin
