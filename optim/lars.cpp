#include "levin/optim/lars.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>

#include "levin/optim/trust_ratio.h"

namespace levin {

LARS::LARS(LARSOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "LARSOptions")) {}

// Algorithm 1 of the paper: v = momentum * v + lr * ratio * (gradient + decay * weights), weights -= v.
void LARS::update(Batch& batch, const Group& group) {
  const at::Tensor weights = detail::stacked_norms(batch.params);  // (layers)
  const at::Tensor gradients = detail::stacked_norms(batch.grads);
  const at::Tensor below = gradients + weights * group.weight_decay + options_.eps;
  // A layer without gradient or weights takes the plain step.
  const at::Tensor ratios = detail::ratio_or_one(weights * options_.trust_coefficient * (gradients > 0), below);
  Tensors updates = at::_foreach_add(batch.grads, batch.params, group.weight_decay);
  detail::scale_layers(updates, ratios, options_.adapt_vectors);
  if (group.momentum == 0) return at::_foreach_add_(batch.params, updates, -group.lr);
  at::_foreach_mul_(batch.state[0], group.momentum);
  at::_foreach_add_(batch.state[0], updates, group.lr);
  at::_foreach_add_(batch.params, batch.state[0], -1);
}

}  // namespace levin
