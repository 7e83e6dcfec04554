#include "levin/optim/radam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "levin/optim/adam_means.h"

namespace levin {

RAdam::RAdam(RAdamOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "RAdamOptions")) {}

void RAdam::update(Batch& batch, const Group& group) {
  const Tensors& exp_avg = batch.state[0];
  const Tensors& exp_avg_sq = batch.state[1];
  const double beta2 = options_.betas[1];
  detail::AdamMeans{beta2, options_.decoupled_weight_decay, options_.maximize}.update(group, batch.params, batch.grads,
                                                                                      exp_avg, exp_avg_sq);

  const auto step = static_cast<double>(batch.step);
  const double correction1 = 1 - std::pow(group.momentum, step);
  const double correction2 = 1 - std::pow(beta2, step);
  const double rho_inf = 2 / (1 - beta2) - 1;
  const double rho = rho_inf - 2 * step * std::pow(beta2, step) / correction2;  // length of the simple moving average
  if (rho <= 5) {
    at::_foreach_add_(batch.params, exp_avg, -group.lr / correction1);
    return;
  }
  const double rectification = std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
  const Tensors denominator = at::_foreach_sqrt(exp_avg_sq);
  at::_foreach_add_(denominator, options_.eps);
  at::_foreach_addcdiv_(batch.params, exp_avg, denominator,
                        -group.lr * rectification * std::sqrt(correction2) / correction1);
}

}  // namespace levin
