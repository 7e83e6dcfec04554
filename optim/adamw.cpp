#include "levin/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>

namespace levin {

AdamW::AdamW(AdamWOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "AdamWOptions")) {}

void AdamW::update(Batch& batch, const Group& group) {
  static const Tensors none;
  const Tensors& largest = options_.amsgrad ? batch.state[2] : none;
  at::_fused_adamw_(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, group.lr,
                    group.momentum, options_.betas[1], group.weight_decay, options_.eps, options_.amsgrad,
                    options_.maximize);
}

}  // namespace levin
