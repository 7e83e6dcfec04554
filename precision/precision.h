// The number format of a run's computations. The training loop asks the plugin for a scope around each step, for the
// dtype of weights and inputs and for its loss scaler; plugins depend neither on loops nor on modules.
//
//   TrainerOptions{.precision = "bf16-mixed"}
//   TrainerOptions{.precision = MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{}})}
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <memory>
#include <optional>
#include <string>

#include "levin/core/state.h"

namespace levin {

class GradScaler;

/// The base of precisions. A subclass implements name(); by default nothing is converted and no loss is scaled. Used by
/// the training thread, and by every thread that predicts with an InferenceModel.
class Precision : public Stateful {
 public:
  static const char* registry_name() { return "precision"; }

  /// Returns the name as in the options: "bf16-mixed".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Returns the type that weights and floating-point inputs are converted to; unset: they are not converted.
  [[nodiscard]] virtual std::optional<at::ScalarType> dtype() const { return std::nullopt; }

  /// Sets the calling thread up for a forward pass until the result is destroyed, which happens on the same thread and
  /// in reverse order. Returns null if there is nothing to set up.
  [[nodiscard]] virtual std::shared_ptr<void> enter_forward(at::DeviceType /*device*/) { return nullptr; }

  /// Returns the loss scaler, which preserves small gradients, or null if the loss is not scaled.
  [[nodiscard]] virtual GradScaler* scaler() { return nullptr; }

  /// Returns the state for resuming, for example a loss scale.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }
};

/// The scope of a precision's forward pass.
class ForwardScope {
 public:
  ForwardScope(Precision& precision, at::DeviceType device) : scope_(precision.enter_forward(device)) {}
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  std::shared_ptr<void> scope_;
};

}  // namespace levin
