#include "levin/optim/adadelta.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

namespace levin {

Adadelta::Adadelta(AdadeltaOptions options)
    : BatchedOptimizer({.lr = options.lr, .weight_decay = options.weight_decay}),
      options_(checked(options, "AdadeltaOptions")) {}

void Adadelta::update(Batch& batch, const Group& group) {
  Tensors& grads = batch.grads;
  const Tensors& square_avg = batch.state[0];
  const Tensors& acc_delta = batch.state[1];
  detail::prepare_gradients(grads, batch.params, group.weight_decay, options_.maximize);
  at::_foreach_mul_(square_avg, options_.rho);
  at::_foreach_addcmul_(square_avg, grads, grads, 1 - options_.rho);
  const Tensors std = at::_foreach_add(square_avg, options_.eps);
  at::_foreach_sqrt_(std);
  const Tensors delta = at::_foreach_add(acc_delta, options_.eps);
  at::_foreach_sqrt_(delta);
  at::_foreach_div_(delta, std);
  at::_foreach_mul_(delta, grads);
  at::_foreach_mul_(acc_delta, options_.rho);
  at::_foreach_addcmul_(acc_delta, delta, delta, 1 - options_.rho);
  at::_foreach_add_(batch.params, delta, -group.lr);
}

}  // namespace levin
