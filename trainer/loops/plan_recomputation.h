// Implements trainer.recompute: {budget: 11GiB} and auto: chooses, before the first batch, the segments that keep a
// step below a memory limit. Internal.
#pragma once

#include <optional>

#include "levin/recompute/chain_plan.h"
#include "levin/trainer/loops/measure_chain.h"

namespace levin {

struct EntryPoint;
struct Run;

/// The memory that a step of the run needs, and the memory that is available.
struct MeasuredFit {
  MeasuredChain chain;
  MemoryBudget free_memory;
};

/// Measures the run's module (measure_chain); returns nothing if there is no batch. Weights, random numbers, metrics
/// and the order of the data do not change. `replicas`: measures the share of the batch that one of this many replicas
/// computes. Every rank calls it, once the training loader is there.
[[nodiscard]] std::optional<MeasuredFit> measure_fit(Run& run, int64_t replicas);

/// Measures the module if there is a budget or auto, chooses the segments (all ranks use rank 0's choice) and
/// recomputes them as if trainer.recompute.modules had named them. Every rank calls it, once the training loader is
/// there. Throws ConfigError with the smallest possible budget if no segments meet this one.
void plan_recomputation(Run& run);

// Hooks into calls of submodules during a run: recomputation, and the blocks of Sequentials.

/// Creates run.entry.recomputation from the options. Called after the module is on its device, before its Sequentials
/// are changed (SequentialCalls). Throws ConfigError with record_steps on a GPU, where random numbers cannot be
/// repeated.
void start_recomputation(Run& run);

/// Makes run.entry.sequential_calls for the module and its replicas. Called after the replicas are created, because the
/// wrapper of a block cannot be copied.
void start_sequential_calls(EntryPoint& entry);

}  // namespace levin
