// The position of a run and its metrics, as stored in a checkpoint. See Note [Where a checkpoint continues] in
// run.h.
#pragma once

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

[[nodiscard]] State progress_state(const Run& run);
void load_progress(Run& run, const State& saved);

/// Before the first loader is made: with how many ranks and which batches the checkpoint's run has trained, and how
/// far.
void expect_batches_of(Run& run, const State& checkpoint);

/// What was logged: the running epoch's sums, and the latest values.
[[nodiscard]] State metrics_state(const Run& run);
void load_metrics(Run& run, const State& saved);

/// Orders checkpoints by progress: the larger, the newer.
struct HowFar {
  int64_t total_batches = 0;
  int64_t epochs = 0;
  bool whole_batch = true;  // the last batch was completed
  auto operator<=>(const HowFar&) const = default;
};

/// Of a checkpoint's values; throws CheckpointError if they are missing (weights only).
[[nodiscard]] HowFar how_far(const ConfigNode& checkpoint_values);

}  // namespace levin
