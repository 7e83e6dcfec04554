// The parts of a step up to its gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/data/batch.h"

namespace levin {

struct Run;

/// training_step under the precision's autocast: the loss, or undefined.
[[nodiscard]] at::Tensor run_training_step(Run& run, const Batch& batch, int64_t batch_idx);

/// At the start of a window, with its hooks.
void zero_gradients(Run& run);

/// Backward with its hooks; `sync` is false inside an accumulation window.
void run_backward(Run& run, const at::Tensor& loss, bool sync);

/// Throws Error for a loss that is not one number, or has no gradient; an undefined one is good.
void check_loss(const at::Tensor& loss);

}  // namespace levin
