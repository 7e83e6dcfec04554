#include "levin/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

namespace levin {

template class OptimizerOf<SGDOptions>;

void SGDOptions::check() const {
  if (!nesterov || (momentum != 0 && dampening == 0)) return;
  throw ConfigError("SGDOptions.nesterov: needs momentum > 0 and dampening 0, got momentum " + number_text(momentum) +
                    " and dampening " + number_text(dampening) + ".");
}

// LibTorch 2.11's kernel for bfloat16 and float16 on CPUs gives wrong numbers, other ones in every call, for tensors of
// 16 elements and more. Its float32 kernel computes from copies instead, and each result is rounded once.
void SGD::update(Batch& batch, const Group& group) {
  const at::Tensor& any = batch.params[0];
  if (!any.is_cpu() || !at::isReducedFloatingType(any.scalar_type())) {
    return update(batch.params, batch.grads, batch.state[0], batch, group);
  }
  const auto in_float32 = [](const Tensors& tensors) {
    Tensors copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.to(at::kFloat));
    return copies;
  };
  const Tensors params = in_float32(batch.params), momenta = in_float32(batch.state[0]);
  update(params, in_float32(batch.grads), momenta, batch, group);
  for (size_t i = 0; i < params.size(); ++i) batch.params[i].copy_(params[i]);
  for (size_t i = 0; i < momenta.size(); ++i) batch.state[0][i].copy_(momenta[i]);
}

void SGD::update(const Tensors& params, const Tensors& grads, const Tensors& momenta, const Batch& batch,
                 const Group& group) const {
  const bool has_momentum = group.momentum != 0;  // without, CUDA's operator warns of what it ignores
  detail::with_learning_rate(batch.lr, group.lr, [&](const auto& lr) {
    at::_fused_sgd_(params, grads, momenta, group.weight_decay, group.momentum, lr, options_.dampening,
                    options_.nesterov && has_momentum, options_.maximize, batch.first && has_momentum, {},
                    batch.found_inf);
  });
}

}  // namespace levin
