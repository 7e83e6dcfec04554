#include "levin/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

namespace levin {

SGD::SGD(SGDOptions options)
    : BatchedOptimizer(
          {.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay, .has_momentum = true}),
      options_(checked(options, "SGDOptions")) {
  if (options_.nesterov && (options_.momentum == 0 || options_.dampening != 0)) {
    throw ConfigError("SGDOptions.nesterov: needs momentum > 0 and dampening 0, got momentum " +
                      number_text(options_.momentum) + " and dampening " + number_text(options_.dampening) + ".");
  }
}

void SGD::update(Batch& batch, const Group& group) {
  const bool has_momentum = group.momentum != 0;  // without, CUDA's operator warns of what it ignores
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    at::_fused_sgd_(batch.params, batch.grads, batch.state[0], group.weight_decay, group.momentum, lr,
                    options_.dampening, options_.nesterov && has_momentum, options_.maximize,
                    batch.first && has_momentum, {}, batch.found_inf);
  });
}

}  // namespace levin
