// In which number format a run computes. The training loop asks the plugin for a scope around each step, for the dtype
// of weights and inputs and for its loss scaler; plugins know neither loops nor modules.
//
//   TrainerOptions{.precision = "bf16-mixed"}
//   TrainerOptions{.precision = MixedPrecision({.dtype = MixedDtype::float16, .scaler = GradScalerOptions{}})}
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "levin/core/state.h"

namespace levin {

class GradScaler;

class Precision {
 public:
  virtual ~Precision() = default;

  static const char* registry_name() { return "precision"; }

  /// As the user writes it: "bf16-mixed".
  [[nodiscard]] virtual std::string name() const = 0;

  /// What weights and floating-point inputs are converted to; nothing: they stay as they are.
  [[nodiscard]] virtual std::optional<at::ScalarType> dtype() const { return std::nullopt; }

  /// Sets the calling thread up for a forward pass until the result is destroyed, which happens on the same thread and
  /// in reverse order. Null: nothing to set up.
  [[nodiscard]] virtual std::shared_ptr<void> enter_forward(at::DeviceType /*device*/) { return nullptr; }

  /// What scales the loss so that small gradients survive; null: the loss is not scaled.
  [[nodiscard]] virtual GradScaler* scaler() { return nullptr; }

  /// What it needs to continue after a restart: a loss scale, for example.
  [[nodiscard]] virtual State state() const { return {}; }
  virtual void load_state(const State&) {}
};

/// Holds a precision's forward pass open.
class ForwardScope {
 public:
  ForwardScope(Precision& precision, at::DeviceType device) : scope_(precision.enter_forward(device)) {}
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  std::shared_ptr<void> scope_;
};

}  // namespace levin
