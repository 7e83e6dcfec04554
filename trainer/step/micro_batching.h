// Implements TrainerOptions::micro_batch_size: a batch is cut into parts that run forward and backward one after
// another, so that only one part's activations are in memory. The result is the gradient of the batch's mean loss.
// Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

#include "levin/data/batch.h"
#include "levin/trainer/step/batch_parts.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/window.h"

namespace levin {

// Note [A micro-batch that does not fit]
// With `auto` a batch begins as a whole. When its passes run out of memory, all their changes are undone (UndoScope;
// logged values are withheld until all parts succeed), and the same batch is run in parts of half the size: bitwise
// identical to a run with that size. Ranks must not wait for the gradients of a rank that has failed, so with several
// ranks no part reduces gradients: after the passes the ranks exchange their outcomes, one message per batch, and
// when all have succeeded a backward of zeros reduces the accumulated gradients. From then on all use the largest part
// that fits on every rank.

/// Runs the passes of a batch in parts of a size that is given or, with `auto`, found.
class MicroBatching {
 public:
  /// Throws ConfigError for strategies and optimizers that do not support it.
  explicit MicroBatching(StepCore& core);

  /// Runs the part of automatic_step before the update. Returns the detached mean loss divided by the window's size.
  /// `skipped`: this rank has nothing to compute. Every rank calls it. Throws OutOfMemoryError if one sample does not
  /// fit.
  [[nodiscard]] at::Tensor step(const Batch& batch, int64_t batch_idx, const WindowPart& window, bool skipped);

  /// Returns the samples of one pass; 0: a whole batch.
  [[nodiscard]] int64_t size() const { return size_; }
  /// With auto, continues with the size found by an earlier run; 0: none.
  void continue_with(int64_t size);

 private:
  [[nodiscard]] BatchParts cut(const Batch& batch) const;
  [[nodiscard]] at::Tensor step_of_size(const Batch& batch, int64_t batch_idx, const WindowPart& window, bool skipped);
  [[nodiscard]] at::Tensor step_that_fits(const Batch& batch, int64_t batch_idx, const WindowPart& window,
                                          bool skipped);
  void run_passes(BatchParts& parts, int64_t batch_idx, bool sync, bool skipped);
  [[nodiscard]] bool judge(const BatchParts& parts);
  [[nodiscard]] int64_t agreed_size(bool failed, int64_t largest);

  StepCore& core_;
  bool automatic_;
  int64_t size_;
};

/// Returns the samples of one forward and backward pass of the running fit; 0: a whole batch.
[[nodiscard]] inline int64_t micro_batch_size(const StepCore& core) {
  return core.micro_batching != nullptr ? core.micro_batching->size() : 0;
}

}  // namespace levin
