// What a forward and backward pass changes besides the metrics, so that one that failed can be undone. Internal.
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

/// Remembers gradients, buffers (the statistics of BatchNorm), random numbers and the window's loss weights. A gradient
/// that is there is copied, so an open accumulation window takes the memory of the gradients once more.
class StepState {
 public:
  /// Both outlive it.
  StepState(LightningModule& module, Fit& fit);
  /// All is as it was. May be called several times.
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
