// Where a run stands and what it has measured, as a checkpoint holds them. See Note [Where a checkpoint continues] in
// run.h.
#pragma once

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

[[nodiscard]] State progress_state(const Run& run);
void load_progress(Run& run, const State& saved);

/// What was logged: the running epoch's sums, and the latest values.
[[nodiscard]] State metrics_state(const Run& run);
void load_metrics(Run& run, const State& saved);

/// Orders checkpoints by how far the run had got: the larger, the newer.
struct HowFar {
  int64_t total_batches = 0;
  int64_t epochs = 0;
  bool whole_batch = true;  // nothing of the last batch was left to be done
  auto operator<=>(const HowFar&) const = default;
};

/// Of a checkpoint's values; throws CheckpointError if it does not say (weights only).
[[nodiscard]] HowFar how_far(const ConfigNode& checkpoint_values);

}  // namespace levin
