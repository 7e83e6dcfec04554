// Where a step's values go: what it logs, its outputs and the weight of its loss. There are three kinds of steps: one
// that runs by itself, one on a part of a batch (step_share.h), and one that is being recorded (step_notes.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/metrics.h"

namespace levin {

class StepContext {
 public:
  using Outputs = std::vector<std::pair<std::string, at::Tensor>>;

  virtual ~StepContext() = default;

  /// What Trainer::log does.
  virtual void log(std::string_view name, const at::Tensor& value, const LogOptions& options) = 0;
  virtual void log(std::string_view name, double value, const LogOptions& options) = 0;
  virtual void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) = 0;
  /// What LightningModule::step_output does. Throws Error for a name that is empty or given twice in a step.
  virtual void publish(std::string_view name, const at::Tensor& value) = 0;
  /// `weight`: (), what the loss counts. It was checked (loss_weights.h).
  virtual void set_loss_weight(const at::Tensor& weight) = 0;
};

/// Throws Error for the name of an output that is empty, or was given in this step already.
void check_output_name(std::string_view name, bool is_taken);
/// Adds a detached output. Throws Error for a name that is empty or taken.
void add_output(StepContext::Outputs& outputs, std::string_view name, const at::Tensor& value);
/// The beginning of a message about an output.
[[nodiscard]] std::string about_output(std::string_view name);

}  // namespace levin
