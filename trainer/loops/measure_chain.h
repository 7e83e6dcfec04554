// Measures what the blocks of a run's module cost: runs training_step and backward a few times on the largest of the
// batches that come first. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "levin/recompute/chain_cost.h"
#include "levin/recompute/recompute_options.h"
#include "levin/trainer/loops/measure_step_peak.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// What else to measure, and of which part of a batch.
struct MeasureRequest {
  int64_t shares = 1;  // devices that a batch is divided among: one share is measured
  std::optional<RecomputeOptions> recompute = std::nullopt;  // segments by name, whose step is measured too
};

struct MeasuredChain {
  ChainCost cost = {};       // of the largest batch, or of one part of it, with micro_batch_size or shares
  ChainCost smaller = {};    // of half as many samples; of one sample: batch 0, which takes nothing that grows
  int64_t samples = 1;       // of the batch
  int64_t batches_seen = 1;  // of which it was the largest
  int64_t outputs = 0;       // bytes of what forward(batch[0]) returns for the batch; 0: not known
  // With MeasureRequest::recompute: of as many samples as cost and smaller are about.
  std::optional<StepPeak> with_segments = std::nullopt;
  std::optional<StepPeak> smaller_with_segments = std::nullopt;
};

/// Measures the run's module on the largest of the next batches, on this rank. Weights, buffers, gradients, random
/// numbers, metrics and the loader are restored afterwards; other members of the module are not. Waits for the device.
/// Unset if there is no batch. Every rank calls it, because layers may wait for all ranks (sync_batchnorm). Throws
/// ConfigError, naming the option, where a step is not one forward and one backward pass of this module here: manual
/// optimization, an optimizer with a closure, sharded weights, several devices in one process.
[[nodiscard]] std::optional<MeasuredChain> measure_chain(Run& run, const MeasureRequest& request = {});

}  // namespace levin
