// A training batch cut into micro-batches, for a strategy that computes several of them at a time. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/data/batch.h"
#include "levin/trainer/run/window.h"

namespace levin {

struct Run;

/// A pass for each micro-batch, in the strategy's order: the gradients are those of the batch's loss divided by the
/// window, scaled if the precision scales. Returns the mean loss of the batch divided by the window, detached;
/// undefined if no micro-batch had one. Logged values are logged once, for the whole batch.
[[nodiscard]] at::Tensor run_pipelined_batch(Run& run, const Batch& batch, int64_t batch_idx, const WindowPart& window);

}  // namespace levin
