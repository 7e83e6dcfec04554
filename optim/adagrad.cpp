#include "levin/optim/adagrad.h"

#include <ATen/ops/_fused_adagrad.h>

namespace levin {

Adagrad::Adagrad(AdagradOptions options)
    : BatchedOptimizer({.lr = options.lr, .weight_decay = options.weight_decay}),
      options_(checked(options, "AdagradOptions")) {}

void Adagrad::update(Batch& batch, const Group& group) {
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    at::_fused_adagrad_(batch.params, batch.grads, batch.state[0], batch.step_tensors, lr, options_.lr_decay,
                        group.weight_decay, options_.eps, options_.maximize, {}, batch.found_inf);
  });
}

}  // namespace levin
