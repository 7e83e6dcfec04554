// Where a step's logged values, its outputs and the weight of its loss go. There are three kinds of steps: a step that
// runs by itself, a step on a part of a batch (step_share.h), and a step that is being recorded (step_notes.h).
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/trainer/metrics.h"

namespace levin {

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

/// Throws Error for the name of an output that is empty, or was already given in this step.
void check_output_name(std::string_view name, bool is_taken);
/// Adds a detached output. Throws Error for a name that is empty or taken.
void add_output(StepContext::Outputs& outputs, std::string_view name, const at::Tensor& value);
/// Returns the beginning of a message about an output.
[[nodiscard]] std::string about_output(std::string_view name);

}  // namespace levin
