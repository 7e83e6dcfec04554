// trainer.recompute: {budget: 11GiB} and auto: segments that keep a step under a limit of memory, chosen before the
// first batch. Internal.
#pragma once

#include <functional>
#include <string>

#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/measure_chain.h"

namespace levin {

/// With a budget or auto: measures the module on the first batch, chooses the segments (rank 0's choice holds for all)
/// and lets them act as if trainer.recompute.modules had named them. Weights, random numbers, metrics and the order of
/// the data stay as they are. False: a MeasureOnly lives, and nothing is to be trained. Every rank calls it, once the
/// training loader is there. Throws ConfigError if no segments meet the budget, saying the least that would.
[[nodiscard]] bool plan_recomputation(Run& run);

/// While it lives, fits on this thread measure their module, give the result to `take` and end before the first batch.
class MeasureOnly {
 public:
  using Take = std::function<void(const MeasuredChain& measured, MemoryBudget free_memory)>;
  /// `replicas`: of the batch, the share that one of so many replicas computes is measured.
  explicit MeasureOnly(Take take, int64_t replicas = 1);
  ~MeasureOnly();
  MeasureOnly(const MeasureOnly&) = delete;
  MeasureOnly& operator=(const MeasureOnly&) = delete;
};

}  // namespace levin
