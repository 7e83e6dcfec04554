// The position of a run and its metrics, as stored in a checkpoint. See Note [Where a checkpoint continues] in
// run/fit.h.
#pragma once

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Returns the position of the run.
[[nodiscard]] State progress_state(const Run& run);
/// Restores the position of the run.
void load_progress(Run& run, const State& saved);

/// Reads with how many ranks and which batches the checkpoint's run has trained, and how far. Called before the first
/// loader is made.
void expect_batches_of(Run& run, const State& checkpoint);

/// Returns what was logged: the running epoch's sums, and the latest values.
[[nodiscard]] State metrics_state(const Run& run);
/// Restores what was logged.
void load_metrics(Run& run, const State& saved);

/// The progress of a checkpoint's run. A newer checkpoint compares greater.
struct HowFar {
  int64_t total_batches = 0;
  int64_t epochs = 0;
  bool whole_batch = true;  // the last batch was completed
  auto operator<=>(const HowFar&) const = default;
};

/// Returns the progress from a checkpoint's values. Throws CheckpointError if they are missing (weights only).
[[nodiscard]] HowFar how_far(const ConfigNode& checkpoint_values);

}  // namespace levin
