// Chooses the StepContext (step_context.h) of the calling thread, and joins the values of a batch's parts.
#pragma once

#include <memory>
#include <vector>

#include "levin/trainer/step/step_context.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

struct StepCore;
struct StepNotes;

/// Returns the context of the step that the calling thread runs.
[[nodiscard]] StepContext& context_of(StepCore& core);
/// Returns the context of a step that runs by itself: values go to the hooks, outputs and weights to the core.
[[nodiscard]] std::unique_ptr<StepContext> make_live_context(StepCore& core);

/// Logs the values of the shares as values of a whole batch: the k-th values of a name are reduced by their reduce_fx;
/// mean is weighted by samples.
void log_shares(StepCore& core, const std::vector<StepShare>& shares);
/// Publishes the outputs of the shares as outputs of a whole batch, on the first share's slot: rows are concatenated
/// if the first dimension is the share's samples; numbers () become their mean weighted by samples. Throws Error for
/// other shapes, and for an output that a share lacks.
void join_outputs(StepCore& core, const std::vector<StepShare>& shares);
/// Logs the recorded step's values after a replay, and publishes copies of its outputs, which the next replay
/// overwrites.
void repeat_notes(StepCore& core, const StepNotes& notes);

}  // namespace levin
