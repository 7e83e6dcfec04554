// trainer.recompute: {budget: 11GiB} and auto: segments that keep a step below a memory limit, chosen before the first
// batch. Internal.
#pragma once

#include <functional>
#include <string>

#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/measure_chain.h"

namespace levin {

/// With a budget or auto: measures the module, chooses the segments (rank 0's choice is used by all) and recomputes
/// them as if trainer.recompute.modules had named them. Weights, random numbers, metrics and the order of the data do
/// not change. False: a MeasureOnly exists, and nothing is to be trained. Every rank calls it, once the training loader
/// is there. Throws ConfigError with the smallest possible budget if no segments meet this one.
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
