#include "levin/optim/adagrad.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "levin/libtorch/fused_adagrad.h"

namespace levin {

template class OptimizerOf<AdagradOptions>;
template class OptimizerOf<AdadeltaOptions>;
template class OptimizerOf<RMSpropOptions>;

bool Adagrad::is_recordable() const {
  return FusedAdagradRate<at::Tensor>;
}

std::string Adagrad::why_not_recordable() const {
  return why_no_adagrad_rate_tensor();
}

void Adagrad::update(Batch& batch, const Group& group) {
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    fused_adagrad(batch.params, batch.grads, batch.state[0], batch.step_tensors, lr, options_.lr_decay,
                  group.weight_decay, options_.eps, options_.maximize, batch.found_inf);
  });
}

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
