// What a forward and backward pass changes besides the metrics, so that one that failed can be undone. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/step/loss_weights.h"

namespace levin {

struct Run;

/// Remembers gradients, buffers (the statistics of BatchNorm), random numbers and the window's loss weights. A gradient
/// that is there is copied, so an open accumulation window takes the memory of the gradients once more.
class StepState {
 public:
  explicit StepState(Run& run);
  /// All is as it was. May be called several times.
  void restore();

 private:
  struct Gradient {
    at::Tensor parameter;
    at::Tensor gradient;  // as it was; undefined: there was none
    at::Tensor copy;
  };

  Run& run_;
  std::vector<Gradient> gradients_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and its copy
  State random_;
  LossWeights weights_;
};

}  // namespace levin
