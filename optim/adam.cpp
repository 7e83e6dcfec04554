#include "levin/optim/adam.h"

#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <cmath>

namespace levin {

template class OptimizerOf<AdamOptions>;
template class OptimizerOf<AdamWOptions>;
template class OptimizerOf<AdamaxOptions>;
template class OptimizerOf<NAdamOptions>;
template class OptimizerOf<RAdamOptions>;

namespace {

bool is_decoupled(const AdamOptions& options) {
  return options.decoupled_weight_decay;
}
bool is_decoupled(const AdamWOptions&) {
  return true;
}

}  // namespace

template <class O>
ConfigNode AdamOf<O>::written_options() const {
  ConfigNode node = OptimizerOf<O>::written_options();
  if constexpr (std::is_same_v<O, AdamWOptions>) node.set("decoupled_weight_decay", ValueType<bool>::write(true));
  return node;
}

template <class O>
std::vector<std::string> AdamOf<O>::state_names() const {
  if (this->options_.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

template <class O>
void AdamOf<O>::update(BatchedOptimizer::Batch& batch, const Optimizer::Group& group) {
  static const std::vector<at::Tensor> none;
  const O& options = this->options_;
  const auto& largest = options.amsgrad ? batch.state[2] : none;
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    const auto fused = [&](auto kernel) {
      kernel(batch.params, batch.grads, batch.state[0], batch.state[1], largest, batch.step_tensors, lr, group.momentum,
             options.betas[1], group.weight_decay, options.eps, options.amsgrad, options.maximize,
             std::optional<at::Tensor>(), batch.found_inf);
    };
    if (is_decoupled(options)) {
      fused([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      fused([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  });
}

template class AdamOf<AdamOptions>;
template class AdamOf<AdamWOptions>;

void Adamax::update(Batch& batch, const Group& group) {
  Tensors& grads = batch.grads;
  const Tensors& exp_avg = batch.state[0];
  const Tensors& exp_inf = batch.state[1];
  detail::prepare_gradients(grads, batch.params, group.weight_decay, options_.maximize);
  at::_foreach_lerp_(exp_avg, grads, 1 - group.momentum);
  const Tensors size = at::_foreach_abs(grads);
  at::_foreach_add_(size, options_.eps);
  at::_foreach_mul_(exp_inf, options_.betas[1]);
  at::_foreach_maximum_(exp_inf, size);
  const double correction = 1 - std::pow(group.momentum, batch.step);
  at::_foreach_addcdiv_(batch.params, exp_avg, exp_inf, -group.lr / correction);
}

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
  // PyTorch keeps the product in float32 regardless of the parameter's type; results depend on that.
  batch.product = static_cast<float>(batch.product) * static_cast<float>(mu);

  const Tensors denominator = at::_foreach_div(exp_avg_sq, 1 - std::pow(beta2, step));
  at::_foreach_sqrt_(denominator);
  at::_foreach_add_(denominator, options_.eps);
  at::_foreach_addcdiv_(batch.params, grads, denominator, -group.lr * (1 - mu) / (1 - batch.product));
  at::_foreach_addcdiv_(batch.params, exp_avg, denominator, -group.lr * mu_next / (1 - batch.product * mu_next));
}

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
