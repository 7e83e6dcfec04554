#include "levin/optim/rmsprop.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

namespace levin {

RMSprop::RMSprop(RMSpropOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "RMSpropOptions")) {}

bool RMSprop::uses_state(size_t index, const Group& group, size_t) const {
  return index == 0 || (index == 1 && group.momentum != 0) || (index == 2 && options_.centered);
}

void RMSprop::update(Batch& batch, const Group& group) {
  Tensors& grads = batch.grads;
  const Tensors& square_avg = batch.state[0];
  detail::prepare_gradients(grads, batch.params, group.weight_decay, options_.maximize);
  at::_foreach_mul_(square_avg, options_.alpha);
  at::_foreach_addcmul_(square_avg, grads, grads, 1 - options_.alpha);
  Tensors denominator;
  if (options_.centered) {
    const Tensors& grad_avg = batch.state[2];
    at::_foreach_lerp_(grad_avg, grads, 1 - options_.alpha);
    denominator = at::_foreach_addcmul(square_avg, grad_avg, grad_avg, -1);
    at::_foreach_sqrt_(denominator);
  } else {
    denominator = at::_foreach_sqrt(square_avg);
  }
  at::_foreach_add_(denominator, options_.eps);
  if (group.momentum == 0) {
    at::_foreach_addcdiv_(batch.params, grads, denominator, -group.lr);
    return;
  }
  const Tensors& buffer = batch.state[1];
  at::_foreach_mul_(buffer, group.momentum);
  at::_foreach_addcdiv_(buffer, grads, denominator);
  at::_foreach_add_(batch.params, buffer, -group.lr);
}

}  // namespace levin
