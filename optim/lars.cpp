#include "levin/optim/lars.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace levin {

template class OptimizerOf<LARSOptions>;
template class OptimizerOf<LAMBOptions>;

namespace {

// The norm of each tensor, (layers); no device is waited for.
at::Tensor stacked_norms(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors));
}

// `above / below` where both are above 0, else 1: layer by layer, (layers) each.
at::Tensor ratio_or_one(const at::Tensor& above, const at::Tensor& below) {
  return at::where((above > 0).logical_and_(below > 0), above / below, at::ones_like(above));
}

// Multiplies tensor i by ratios[i], in place, if it has two dimensions or more, or with `vectors`.
void scale_layers(std::vector<at::Tensor>& tensors, const at::Tensor& ratios, bool vectors) {
  const std::vector<at::Tensor> each = ratios.unbind();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dim() > 1 || vectors) tensors[i].mul_(each[i]);
  }
}

}  // namespace

// Algorithm 1 of the paper: v = momentum * v + lr * ratio * (gradient + decay * weights), weights -= v.
void LARS::update(Batch& batch, const Group& group) {
  const at::Tensor weights = stacked_norms(batch.params);  // (layers)
  const at::Tensor gradients = stacked_norms(batch.grads);
  const at::Tensor below = gradients + weights * group.weight_decay + options_.eps;
  // A layer without gradient or weights takes the plain step.
  const at::Tensor ratios = ratio_or_one(weights * options_.trust_coefficient * (gradients > 0), below);
  Tensors updates = at::_foreach_add(batch.grads, batch.params, group.weight_decay);
  scale_layers(updates, ratios, options_.adapt_vectors);
  if (group.momentum == 0) return at::_foreach_add_(batch.params, updates, -group.lr);
  at::_foreach_mul_(batch.state[0], group.momentum);
  at::_foreach_add_(batch.state[0], updates, group.lr);
  at::_foreach_add_(batch.params, batch.state[0], -1);
}

// Algorithm 2 of the paper, with the identity as phi.
void LAMB::update(Batch& batch, const Group& group) {
  const double beta2 = options_.betas[1];
  const Group only_means{.momentum = group.momentum};  // the decay is part of the update
  detail::AdamMeans{.beta2 = beta2}.update(only_means, batch.params, batch.grads, batch.state[0], batch.state[1]);
  const auto step = static_cast<double>(batch.step);
  const Tensors denominator = at::_foreach_div(batch.state[1], 1 - std::pow(beta2, step));
  at::_foreach_sqrt_(denominator);
  at::_foreach_add_(denominator, options_.eps);
  Tensors updates = at::_foreach_div(batch.state[0], 1 - std::pow(group.momentum, step));
  at::_foreach_div_(updates, denominator);
  at::_foreach_add_(updates, batch.params, group.weight_decay);
  const at::Tensor ratios = ratio_or_one(stacked_norms(batch.params), stacked_norms(updates));
  scale_layers(updates, ratios, options_.adapt_vectors);
  at::_foreach_add_(batch.params, updates, -group.lr);
}

}  // namespace levin
