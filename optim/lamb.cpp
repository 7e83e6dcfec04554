#include "levin/optim/lamb.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "levin/optim/adam_means.h"
#include "levin/optim/trust_ratio.h"

namespace levin {

LAMB::LAMB(LAMBOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.betas[0], .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "LAMBOptions")) {}

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
  const at::Tensor ratios = detail::ratio_or_one(detail::stacked_norms(batch.params), detail::stacked_norms(updates));
  detail::scale_layers(updates, ratios, options_.adapt_vectors);
  at::_foreach_add_(batch.params, updates, -group.lr);
}

}  // namespace levin
