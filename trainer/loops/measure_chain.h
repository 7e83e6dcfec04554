// Measures what the blocks of a run's module cost: runs training_step and backward a few times on the largest of the
// batches that come first. Internal.
#pragma once

#include <optional>

#include "levin/recompute/chain_cost.h"
#include "levin/trainer/run/run.h"

namespace levin {

struct MeasuredChain {
  ChainCost cost = {};       // of the largest batch; with micro_batch_size or replicas: of one of its parts
  ChainCost smaller = {};    // of half as many samples; of one sample: batch 0, which takes nothing that grows
  int64_t samples = 1;       // of the batch
  int64_t batches_seen = 1;  // of which it was the largest
};

/// Measures the run's module on the largest of the next batches, on this rank. Weights, buffers, gradients, random
/// numbers, metrics and the loader are restored afterwards; other members of the module are not. Waits for the device.
/// Unset if there is no batch. Every rank calls it, because layers may wait for all ranks (sync_batchnorm). Throws
/// ConfigError, naming the option, where a step is not one forward and one backward pass of this module here: manual
/// optimization, an optimizer with a closure, sharded weights, several devices in one process. `replicas`: what is
/// measured is the largest share of the batch that one of so many has; inputs stay the whole batch's.
[[nodiscard]] std::optional<MeasuredChain> measure_chain(Run& run, int64_t replicas = 1);

}  // namespace levin
