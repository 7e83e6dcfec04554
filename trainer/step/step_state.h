// Saves what a forward and backward pass changes besides the metrics, so that a failed one can be undone. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/run/window_weights.h"

namespace levin {

class LightningModule;
struct Fit;

/// Saves gradients, buffers (the statistics of BatchNorm), random number generators and the window's loss weights.
/// Existing gradients are copied, so in an open accumulation window this takes as much memory as the gradients.
class StepState {
 public:
  /// Both outlive it.
  StepState(LightningModule& module, Fit& fit);
  /// Restores the saved state. May be called several times.
  void restore();

 private:
  struct Gradient {
    at::Tensor parameter;
    at::Tensor gradient;  // as it was; undefined: there was none
    at::Tensor copy;
  };

  Fit& fit_;
  std::vector<Gradient> gradients_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and its copy
  State random_;
  LossWeights weights_;
  WindowWeights window_weights_;
};

}  // namespace levin
