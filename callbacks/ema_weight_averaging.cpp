#include "levin/callbacks/ema_weight_averaging.h"

#include <ATen/ops/_foreach_lerp.h>

namespace levin {

EMAWeightAveraging::EMAWeightAveraging(EMAWeightAveragingOptions options)
    : WeightAveraging(
          {.device = checked(options, "EMAWeightAveragingOptions").device, .use_buffers = options.use_buffers}),
      options_(std::move(options)) {}

bool EMAWeightAveraging::should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const {
  if (step_idx) {
    const int64_t every = options_.update_every_n_steps;
    return *step_idx >= options_.update_starting_at_step.value_or(0) && every > 0 && *step_idx % every == 0;
  }
  return epoch_idx && options_.update_starting_at_epoch && *epoch_idx >= *options_.update_starting_at_epoch;
}

void EMAWeightAveraging::average(at::TensorList averages, at::TensorList weights, int64_t) const {
  at::_foreach_lerp_(averages, weights, 1 - options_.decay);
}

}  // namespace levin
