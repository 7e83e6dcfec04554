// A training step measured as a whole, with the recomputation that is attached to the module. Internal.
#pragma once

#include "levin/data/batch.h"
#include "levin/recompute/chain_cost.h"
#include "levin/recompute/memory_meter.h"
#include "levin/trainer/run/run.h"

namespace levin {

struct StepPeak {
  int64_t peak = 0;    // the most that it holds, in bytes, with weights, optimizer state and batch
  double seconds = 0;  // of forward, backward and update
};

/// Runs training_step and backward on `batch` a few times; the gradients are dropped. `cost`: of as many samples, for
/// what does not depend on the blocks: weights, optimizer state, the update.
[[nodiscard]] StepPeak measure_step_peak(Run& run, MemoryMeter& meter, const Batch& batch, const ChainCost& cost);

/// Forgets the gradients of the run's module.
void drop_gradients(Run& run);

}  // namespace levin
