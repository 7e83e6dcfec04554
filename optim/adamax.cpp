#include "levin/optim/adamax.h"

#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>

#include <cmath>

namespace levin {

Adamax::Adamax(AdamaxOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "AdamaxOptions")) {}

void Adamax::update(Batch& batch, const Group& group) {
  Tensors& grads = batch.grads;
  const Tensors& exp_avg = batch.state[0];
  const Tensors& exp_inf = batch.state[1];
  detail::prepare_gradients(grads, batch.params, group.weight_decay, options_.maximize);
  at::_foreach_lerp_(exp_avg, grads, 1 - group.momentum);
  const Tensors size = at::_foreach_abs(grads);
  at::_foreach_add_(size, options_.eps);
  at::_foreach_mul_(exp_inf, options_.betas[1]);
  at::_foreach_maximum_(exp_inf, size);
  const double correction = 1 - std::pow(group.momentum, batch.step);
  at::_foreach_addcdiv_(batch.params, exp_avg, exp_inf, -group.lr / correction);
}

}  // namespace levin
