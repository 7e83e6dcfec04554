// A parameter as a whole, whatever the strategy keeps of it on a rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/strategies/strategy.h"

namespace levin {

/// The whole value of a module's parameter: where the strategy shards it, gathered on rank 0 (undefined on the others),
/// so every rank calls it; else the parameter's own, detached.
[[nodiscard]] inline at::Tensor whole_parameter(Strategy& strategy, const at::Tensor& parameter) {
  if (!strategy.place_of(parameter)) return parameter.detach();
  return strategy.whole_on_rank_zero(parameter, strategy.part_of(parameter));
}

}  // namespace levin
