#include "levin/optim/nadam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "levin/optim/adam_means.h"

namespace levin {

NAdam::NAdam(NAdamOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "NAdamOptions")) {}

void NAdam::update(Batch& batch, const Group& group) {
  Tensors& grads = batch.grads;
  const Tensors& exp_avg = batch.state[0];
  const Tensors& exp_avg_sq = batch.state[1];
  const double beta2 = options_.betas[1];
  detail::AdamMeans{beta2, options_.decoupled_weight_decay, options_.maximize}.update(group, batch.params, grads,
                                                                                      exp_avg, exp_avg_sq);

  const auto step = static_cast<double>(batch.step);
  const double mu = group.momentum * (1 - 0.5 * std::pow(0.96, step * options_.momentum_decay));
  const double mu_next = group.momentum * (1 - 0.5 * std::pow(0.96, (step + 1) * options_.momentum_decay));
  // PyTorch keeps the product in float32 whatever the parameter's type; results depend on that.
  batch.product = static_cast<float>(batch.product) * static_cast<float>(mu);

  const Tensors denominator = at::_foreach_div(exp_avg_sq, 1 - std::pow(beta2, step));
  at::_foreach_sqrt_(denominator);
  at::_foreach_add_(denominator, options_.eps);
  at::_foreach_addcdiv_(batch.params, grads, denominator, -group.lr * (1 - mu) / (1 - batch.product));
  at::_foreach_addcdiv_(batch.params, exp_avg, denominator, -group.lr * mu_next / (1 - batch.product * mu_next));
}

}  // namespace levin
