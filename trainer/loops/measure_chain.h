// Measures what the blocks of a run's module cost: runs training_step and backward a few times on the largest of the
// batches that come first. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "levin/data/batch.h"
#include "levin/recompute/chain_cost.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The costs of a step.
struct MeasuredChain {
  ChainCost cost = {};       // of the largest batch; with micro_batch_size or replicas: of one of its parts
  ChainCost smaller = {};    // of half as many samples; of one sample: batch 0, which takes nothing that grows
  int64_t samples = 1;       // of the batch
  int64_t batches_seen = 1;  // batches among which it was the largest
};

/// Measures the run's module on the largest of the next batches, on this rank. Weights, buffers, gradients, random
/// numbers, metrics and the loader are restored afterwards; other members of the module are not. Waits for the device.
/// Returns nothing if there is no batch. Every rank calls it, because layers may wait for all ranks (sync_batchnorm).
/// Throws ConfigError, naming the option, if a step is not one forward and one backward pass of this module on this
/// device: with manual optimization, an optimizer with a closure, sharded weights, several devices in one process.
/// `replicas`: measures the largest part of the batch that one of this many replicas has; inputs are the full batch's.
[[nodiscard]] std::optional<MeasuredChain> measure_chain(Run& run, int64_t replicas = 1);

/// The batch with which the memory planner measures a run.
struct BatchToMeasure {
  Batch batch = {};          // on the device
  int64_t batches_seen = 0;  // it is the largest of this many
};

/// Returns the largest, in bytes, of the next (at most 32) batches: text is padded to the longest of its batch, so the
/// first batch may be much smaller than others. Returns nothing if there is no batch. The training loaders are stopped
/// afterwards; the next pass begins where it would have begun.
[[nodiscard]] std::optional<BatchToMeasure> largest_of_next_batches(Run& run);

/// Returns a copy of the first `samples` of the batch; tensors without a row for each sample are left unchanged.
[[nodiscard]] Batch first_samples(const Batch& batch, int64_t samples);

/// Returns the bytes of the batch's tensors.
[[nodiscard]] int64_t batch_bytes(const Batch& batch);

}  // namespace levin
