#pragma once

#include <ATen/core/Tensor.h>

namespace levin {

// See Note [Where a loss weight goes] in step/loss_weights.h.

/// Whether the losses of a window come with weights; open: there was none yet.
enum class WeightKind { open, plain, weighted };

/// What the batches of an accumulation window weigh so far.
struct WindowWeights {
  WeightKind kind = WeightKind::open;
  at::Tensor total = {};  // () float64, their sum; undefined: nothing
};

/// What all windows of a fit have in common.
struct LossWeights {
  WeightKind agreed = WeightKind::open;  // with several ranks: what all of them do, once they have asked each other
  double unit = 0;                       // 0: not chosen yet
  at::Tensor said = {};                  // () what the running batch said; undefined: nothing
};

}  // namespace levin
