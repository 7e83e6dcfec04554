#include "levin/trainer/step/undo_scope.h"

#include <ATen/core/grad_mode.h>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"

namespace levin {

UndoScope::UndoScope(LightningModule& module, Options options) : options_(options), random_(random_state()) {
  const at::NoGradGuard no_grad;
  const auto save = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const at::Tensor own = tensor.detach();
    tensors_.emplace_back(own, options.copies_to_host && !own.is_cpu() ? own.to(at::kCPU) : own.clone());
  };
  for (at::Tensor& parameter : module.parameters()) {
    const at::Tensor gradient = parameter.grad();
    if (options.sets_gradients_aside) {
      gradients_.push_back({parameter, gradient, {}});
      parameter.mutable_grad() = at::Tensor();
    } else if (parameter.requires_grad()) {
      gradients_.push_back({parameter, gradient, gradient.defined() ? gradient.clone() : at::Tensor()});
    }
    if (options.saves_weights) save(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) save(buffer);
  modes_.emplace_back(&module, module.is_training());
  for (const auto& child : module.modules(/*include_self=*/false)) {
    modes_.emplace_back(child.get(), child->is_training());
  }
}

void UndoScope::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [parameter, gradient, copy] : gradients_) {
    if (copy.defined()) gradient.copy_(copy);  // the same memory: it may be a view of a communication bucket
    parameter.mutable_grad() = options_.sets_gradients_aside ? at::Tensor() : gradient;
  }
  for (auto& [tensor, copy] : tensors_) tensor.copy_(copy);
  for (const auto& [module, was_training] : modes_) module->train(was_training);
  restore_random_state(random_);
  metrics_.restore();
}

void UndoScope::end() {
  restore();
  for (auto& [parameter, gradient, copy] : gradients_) parameter.mutable_grad() = gradient;
}

}  // namespace levin
