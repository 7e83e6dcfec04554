#include "levin/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

namespace levin {

Adam::Adam(AdamOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "AdamOptions")) {}

void Adam::update(Batch& batch, const Group& group) {
  static const Tensors none;
  const Tensors& largest = options_.amsgrad ? batch.state[2] : none;
  if (options_.decoupled_weight_decay) {
    at::_fused_adamw_(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, group.lr,
                      group.momentum, options_.betas[1], group.weight_decay, options_.eps, options_.amsgrad,
                      options_.maximize);
  } else {
    at::_fused_adam_(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, group.lr,
                     group.momentum, options_.betas[1], group.weight_decay, options_.eps, options_.amsgrad,
                     options_.maximize);
  }
}

}  // namespace levin
