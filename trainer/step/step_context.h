// Where a step's logged values, its outputs and the weight of its loss go. There are three kinds of steps: a step that
// runs by itself, a step on a part of a batch (step_share.h), and a step that is being recorded (step_notes.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/metrics.h"

namespace levin {

struct StepCore;
struct StepNotes;
struct StepShare;

/// The receiver of a step's values.
class StepContext {
 public:
  using Outputs = std::vector<std::pair<std::string, at::Tensor>>;

  virtual ~StepContext() = default;

  /// Takes a value of Trainer::log.
  virtual void log(std::string_view name, const at::Tensor& value, const LogOptions& options) = 0;
  virtual void log(std::string_view name, double value, const LogOptions& options) = 0;
  virtual void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) = 0;
  /// Takes a value of LightningModule::step_output. Throws Error for a name that is empty or given twice in a step.
  virtual void publish(std::string_view name, const at::Tensor& value) = 0;
  /// Takes the weight of the loss, (), which was checked (loss_weights.h).
  virtual void set_loss_weight(const at::Tensor& weight) = 0;
};

/// Returns the context of the step that the calling thread runs.
[[nodiscard]] StepContext& context_of(StepCore& core);
/// Returns the context of a step that runs by itself: values go to the hooks, outputs and weights to the core.
[[nodiscard]] std::unique_ptr<StepContext> make_live_context(StepCore& core);

/// Adds a detached output. Throws Error for a name that is empty or taken.
void add_output(StepContext::Outputs& outputs, std::string_view name, const at::Tensor& value);

/// Logs the values of the shares as values of a whole batch: the k-th values of a name are reduced by their reduce_fx;
/// mean is weighted by samples.
void log_shares(StepCore& core, const std::vector<StepShare>& shares);
/// Publishes the outputs of the shares as outputs of a whole batch, on the first share's slot: rows are
/// concatenated if the first dimension is the share's samples; numbers () become their mean weighted by samples. Throws
/// Error for other shapes, and for an output that a share lacks.
void join_outputs(StepCore& core, const std::vector<StepShare>& shares);
/// Logs the recorded step's values after a replay, and publishes copies of its outputs, which the next replay
/// overwrites.
void repeat_notes(StepCore& core, const StepNotes& notes);

}  // namespace levin
