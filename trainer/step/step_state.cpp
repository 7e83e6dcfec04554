#include "levin/trainer/step/step_state.h"

#include <ATen/core/grad_mode.h>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/run.h"

namespace levin {

StepState::StepState(Run& run) : run_(run), random_(random_state()), weights_(run.fit.loss_weights) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : run.entry.module->parameters()) {
    if (!parameter.requires_grad()) continue;
    const at::Tensor gradient = parameter.grad();
    gradients_.push_back({parameter, gradient, gradient.defined() ? gradient.clone() : at::Tensor()});
  }
  for (const auto& buffer : run.entry.module->buffers()) {
    if (buffer.defined()) buffers_.emplace_back(buffer, buffer.clone());
  }
}

void StepState::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [parameter, gradient, copy] : gradients_) {
    if (gradient.defined()) gradient.copy_(copy);  // the same memory: it may be a view of a communication bucket
    parameter.mutable_grad() = gradient;
  }
  for (auto& [buffer, copy] : buffers_) buffer.copy_(copy);
  restore_random_state(random_);
  run_.fit.loss_weights = weights_;
}

}  // namespace levin
