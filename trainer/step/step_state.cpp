#include "levin/trainer/step/step_state.h"

#include <ATen/core/grad_mode.h>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/fit.h"

namespace levin {

StepState::StepState(LightningModule& module, Fit& fit)
    : fit_(fit), random_(random_state()), weights_(fit.loss_weights), window_weights_(fit.epoch.window.weights) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : module.parameters()) {
    if (!parameter.requires_grad()) continue;
    const at::Tensor gradient = parameter.grad();
    gradients_.push_back({parameter, gradient, gradient.defined() ? gradient.clone() : at::Tensor()});
  }
  for (const auto& buffer : module.buffers()) {
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
  fit_.loss_weights = weights_;
  fit_.epoch.window.weights = window_weights_;
}

}  // namespace levin
