#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin {

/// What the batches of an accumulation window weigh: see Note [Where a loss weight goes] in step/loss_weights.h.
struct LossWeights {
  enum class Kind { open, plain, weighted };

  Kind kind = Kind::open;  // of the open window; of the whole fit once ranks have agreed
  bool agreed = false;     // with several ranks
  double unit = 0;         // 0: not chosen yet
  at::Tensor said;         // () what the running batch said; undefined: nothing
  at::Tensor total;        // () float64, the sum of the open window; undefined: nothing
};

}  // namespace levin
