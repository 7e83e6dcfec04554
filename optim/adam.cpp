#include "levin/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

namespace levin {

AdamBase::AdamBase(AdamOptions checked_options)
    : BatchedOptimizer({.lr = checked_options.lr,
                        .momentum = checked_options.betas[0],
                        .weight_decay = checked_options.weight_decay,
                        .has_momentum = true}),
      options_(checked_options) {}

void AdamBase::update(Batch& batch, const Group& group) {
  static const Tensors none;
  const Tensors& largest = options_.amsgrad ? batch.state[2] : none;
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    if (options_.decoupled_weight_decay) {
      at::_fused_adamw_(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, lr,
                        group.momentum, options_.betas[1], group.weight_decay, options_.eps, options_.amsgrad,
                        options_.maximize, {}, batch.found_inf);
    } else {
      at::_fused_adam_(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, lr,
                       group.momentum, options_.betas[1], group.weight_decay, options_.eps, options_.amsgrad,
                       options_.maximize, {}, batch.found_inf);
    }
  });
}

}  // namespace levin
