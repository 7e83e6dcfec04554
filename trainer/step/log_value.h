// Where `log` goes: to the notes of a step being captured, to the share of a batch that the thread computes, or to the
// running loop's metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/trainer/metrics.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

struct StepCore;
struct StepNotes;

/// What Trainer::log does.
void log_value(StepCore& core, std::string_view name, const at::Tensor& value, const LogOptions& options);
void log_value(StepCore& core, std::string_view name, double value, const LogOptions& options);
void log_value(StepCore& core, std::string_view name, metrics::Metric& metric, const LogOptions& options);

/// Logs the values of the shares as values of a whole batch: the k-th values of a name are reduced by their reduce_fx;
/// mean is weighted by samples.
void log_shares(StepCore& core, const std::vector<StepShare>& shares);

// Where step_output goes: to the notes of a step being recorded, to the share of a batch that the thread computes, or
// to the hooks after the batch.

/// What LightningModule::step_output does. Throws Error for a name that is empty or given twice in a step.
void publish_output(StepCore& core, std::string_view name, const at::Tensor& value);

/// Publishes the outputs of the shares as outputs of a whole batch, on the first one's slot: rows one after another
/// where the first dimension is the share's samples; of numbers () the mean weighted by samples. Throws Error for other
/// shapes, and for an output that a share lacks.
void join_outputs(StepCore& core, const std::vector<StepShare>& shares);

/// After a replay: the recorded step's outputs, copied, as the next replay overwrites them.
void give_outputs_again(StepCore& core, const StepNotes& notes);

}  // namespace levin
