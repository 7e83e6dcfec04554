// trainer.recompute: {budget: 11GiB} and auto: segments that keep a step below a memory limit, chosen before the first
// batch. Internal.
#pragma once

#include <optional>

#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/measure_chain.h"

namespace levin {

struct EntryPoint;
struct Run;

/// What a step of the run takes, and the memory that it may take.
struct MeasuredFit {
  MeasuredChain chain;
  MemoryBudget free_memory;
};

/// Measures the run's module (measure_chain); unset if there is no batch. Weights, random numbers, metrics and the
/// order of the data do not change. `replicas`: the share of the batch that one of this many replicas computes is
/// measured. Every rank calls it, once the training loader is there.
[[nodiscard]] std::optional<MeasuredFit> measure_fit(Run& run, int64_t replicas);

/// With a budget or auto: measures the module, chooses the segments (rank 0's choice is used by all) and recomputes
/// them as if trainer.recompute.modules had named them. Every rank calls it, once the training loader is there. Throws
/// ConfigError with the smallest possible budget if no segments meet this one.
void plan_recomputation(Run& run);

// Hooks into calls of submodules during a run: recomputation, and the blocks of Sequentials.

/// Creates run.entry.recomputation from the options. After the module is on its device, before its Sequentials are
/// changed (SequentialCalls). Throws ConfigError with record_steps on a GPU, where random numbers cannot be repeated.
void start_recomputation(Run& run);

/// Makes run.entry.sequential_calls for the module and its replicas. After these are created: the wrapper of a block
/// cannot be copied.
void start_sequential_calls(EntryPoint& entry);

}  // namespace levin
