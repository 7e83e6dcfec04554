#include "levin/optim/schedule_free_adamw.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/lerp.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace levin {

template class OptimizerOf<ScheduleFreeAdamWOptions>;

// Algorithm 1 of the paper: z takes AdamW's step, x = (1 - c) x + c z, y = (1 - beta1) z + beta1 x. x is not kept: with
// the step d of z, the three give y = (1 - c) y + c z - (1 - beta1 (1 - c)) lr d.
void ScheduleFreeAdamW::update(Batch& batch, const Group& group) {
  if (!kept_.empty()) {
    throw Error("ScheduleFreeAdamW: the parameters hold the average. Call train() before the next step.");
  }
  const Tensors& y = batch.params;
  const Tensors& z = batch.state[0];
  const Tensors& exp_avg_sq = batch.state[1];
  if (batch.first) at::_foreach_copy_(z, y);
  const double beta1 = group.momentum, beta2 = options_.betas[1];
  const auto step = static_cast<double>(batch.step);
  const double warmup = options_.warmup_steps == 0 ? 1 : step / static_cast<double>(options_.warmup_steps);
  const double lr = group.lr * std::sqrt(1 - std::pow(beta2, step)) * std::min(1.0, warmup);
  batch.product = (batch.step == 1 ? 0 : batch.product) + lr * lr;
  const double c = batch.product > 0 ? lr * lr / batch.product : 0;

  at::_foreach_mul_(exp_avg_sq, beta2);
  at::_foreach_addcmul_(exp_avg_sq, batch.grads, batch.grads, 1 - beta2);
  const Tensors denominator = at::_foreach_sqrt(exp_avg_sq);
  at::_foreach_add_(denominator, options_.eps);
  const Tensors d = at::_foreach_div(batch.grads, denominator);
  if (group.weight_decay != 0) at::_foreach_add_(d, y, group.weight_decay);
  at::_foreach_lerp_(y, z, c);
  at::_foreach_add_(y, d, (beta1 * (1 - c) - 1) * lr);
  at::_foreach_add_(z, d, -lr);
}

std::vector<AveragingOptimizer::Averaged> ScheduleFreeAdamW::averages() const {
  if (!kept_.empty()) return kept_;
  const at::NoGradGuard no_grad;
  std::vector<Averaged> all;
  size_t index = 0;
  for (const auto& group : groups_) {
    for (const auto& param : group.params) {
      const at::Tensor& z = state_of(index++, 0);
      if (!z.defined()) continue;
      const at::Tensor y = param.detach().clone();
      all.push_back({param, at::lerp(y, z, 1 - 1 / group.momentum), y});
    }
  }
  return all;
}

void ScheduleFreeAdamW::eval() {
  kept_ = averages();
  const at::NoGradGuard no_grad;
  for (auto& [param, average, trained] : kept_) param.copy_(average);
}

void ScheduleFreeAdamW::train() {
  const at::NoGradGuard no_grad;
  for (auto& [param, average, trained] : std::exchange(kept_, {})) param.copy_(trained);
}

void ScheduleFreeAdamW::load_state_dict(const State& saved) {
  BatchedOptimizer::load_state_dict(saved);
  kept_.clear();
}

}  // namespace levin
