#pragma once

#include <ATen/core/Tensor.h>

namespace levin {

// See Note [Where a loss weight goes] in step/loss_weights.h.

/// Whether the losses of a window have weights; open: not known yet.
enum class WeightKind { open, plain, weighted };

/// The weights of an accumulation window's batches so far.
struct WindowWeights {
  WeightKind kind = WeightKind::open;
  at::Tensor total = {};  // () float64, their sum; undefined: nothing
};

/// What all windows of a fit have in common.
struct LossWeights {
  WeightKind agreed = WeightKind::open;  // with several ranks: what all of them do, once they have agreed
  double unit = 0;                       // 0: not chosen yet
  at::Tensor said = {};                  // () the running batch's weight; undefined: none
};

}  // namespace levin
