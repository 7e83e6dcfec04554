// Where the values of a step go: StepContext (step_context.h) for the thread that asks, and from the parts of a batch
// to the whole batch.
#pragma once

#include <memory>
#include <vector>

#include "levin/trainer/step/step_context.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

struct StepCore;
struct StepNotes;

/// The context of the step that the calling thread runs.
[[nodiscard]] StepContext& context_of(StepCore& core);
/// The context of a step that runs by itself: values go to the hooks, outputs and weights to the core.
[[nodiscard]] std::unique_ptr<StepContext> make_live_context(StepCore& core);

/// Logs the values of the shares as values of a whole batch: the k-th values of a name are reduced by their reduce_fx;
/// mean is weighted by samples.
void log_shares(StepCore& core, const std::vector<StepShare>& shares);
/// Publishes the outputs of the shares as outputs of a whole batch, on the first one's slot: rows one after another
/// where the first dimension is the share's samples; of numbers () the mean weighted by samples. Throws Error for other
/// shapes, and for an output that a share lacks.
void join_outputs(StepCore& core, const std::vector<StepShare>& shares);
/// After a replay: logs the recorded step's values, and publishes copies of its outputs, which the next replay
/// overwrites.
void repeat_notes(StepCore& core, const StepNotes& notes);

}  // namespace levin
