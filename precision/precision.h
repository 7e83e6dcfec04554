// In which number format a run computes. The training loop asks the plugin for a scope around each step and for the
// dtype of weights and inputs; plugins know neither loops nor modules.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "levin/core/state.h"

namespace levin {

class Precision {
 public:
  virtual ~Precision() = default;

  static const char* registry_name() { return "precision"; }

  /// As the user writes it: "bf16-mixed".
  [[nodiscard]] virtual std::string name() const = 0;

  /// What weights and floating-point inputs are converted to; nothing: they stay as they are.
  [[nodiscard]] virtual std::optional<at::ScalarType> dtype() const { return std::nullopt; }

  /// Called around every forward pass, on the thread that runs it. Calls may nest.
  virtual void enter_forward(at::DeviceType /*device*/) {}
  virtual void leave_forward(at::DeviceType /*device*/) {}

  /// What it needs to continue after a restart: a loss scale, for example.
  [[nodiscard]] virtual State state() const { return {}; }
  virtual void load_state(const State&) {}
};

/// Holds a precision's forward scope open.
class ForwardScope {
 public:
  ForwardScope(Precision& precision, at::DeviceType device) : precision_(precision), device_(device) {
    precision_.enter_forward(device_);
  }
  ~ForwardScope() { precision_.leave_forward(device_); }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  Precision& precision_;
  at::DeviceType device_;
};

/// The plugin for a Lightning name: 32-true, 64-true, bf16-true, bf16-mixed, or 32, 64, bf16 for short.
/// Throws ConfigError listing the known names.
[[nodiscard]] std::unique_ptr<Precision> make_precision(const std::string& name);

}  // namespace levin
