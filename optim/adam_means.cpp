#include "levin/optim/adam_means.h"

#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>

#include "levin/optim/batched_optimizer.h"

namespace levin::detail {

void AdamMeans::update(const Optimizer::Group& group, const std::vector<at::Tensor>& params,
                       std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& exp_avg,
                       const std::vector<at::Tensor>& exp_avg_sq) const {
  prepare_gradients(grads, params, decoupled_weight_decay ? 0 : group.weight_decay, maximize);
  if (decoupled_weight_decay && group.weight_decay != 0) at::_foreach_mul_(params, 1 - group.lr * group.weight_decay);
  at::_foreach_lerp_(exp_avg, grads, 1 - group.momentum);
  at::_foreach_mul_(exp_avg_sq, beta2);
  at::_foreach_addcmul_(exp_avg_sq, grads, grads, 1 - beta2);
}

}  // namespace levin::detail
