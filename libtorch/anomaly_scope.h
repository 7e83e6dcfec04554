// Implements TrainerOptions::detect_anomaly: autograd checks gradients and names the operator of the forward pass.
#pragma once

#include <torch/csrc/autograd/anomaly_mode.h>

namespace levin {

/// A scope in which autograd's anomaly mode is on, if requested.
class AnomalyScope {
 public:
  explicit AnomalyScope(bool on) : outer_(torch::autograd::AnomalyMode::is_enabled()) {
    if (on) torch::autograd::AnomalyMode::set_enabled(true);
  }
  ~AnomalyScope() { torch::autograd::AnomalyMode::set_enabled(outer_); }
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  bool outer_;
};

}  // namespace levin
