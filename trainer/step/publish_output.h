// Where step_output goes: to the notes of a step being recorded, to the share of a batch that the thread computes, or
// to the hooks after the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/trainer/step/step_share.h"

namespace levin {

struct Run;
struct StepNotes;

/// What LightningModule::step_output does. Throws Error for a name that is empty or given twice in a step.
void publish_output(Run& run, std::string_view name, const at::Tensor& value);

/// Publishes the outputs of the shares as those of a whole batch, on the first one's slot: rows one after another where
/// the first dimension is the share's samples; of numbers () the mean weighted by samples. Throws Error for other
/// shapes, and for an output that a share lacks.
void join_outputs(Run& run, const std::vector<StepShare>& shares);

/// After a replay: the recorded step's outputs, copied, as the next replay overwrites them.
void give_outputs_again(Run& run, const StepNotes& notes);

}  // namespace levin
