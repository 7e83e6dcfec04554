#include "levin/strategies/loss_gradient.h"

#include <ATen/ops/ones_like.h>

#include <utility>

namespace levin {

void LossGradient::backward(const at::Tensor& loss) {
  if (own_) return own_(loss);
  if (loss.numel() != 1) return loss.backward();  // throws the right error
  if (!loss.is_cpu() || !reuses_) return loss.backward();
  at::Tensor one = std::exchange(one_, at::Tensor());  // put back only if backward succeeds
  if (!fits(one, loss)) {
    one = at::ones_like(loss);
    version_ = one._version();
  }
  loss.backward(one);
  if (untouched(one)) one_ = std::move(one);
}

bool LossGradient::fits(const at::Tensor& one, const at::Tensor& loss) {
  return one.defined() && one.sizes() == loss.sizes() && one.scalar_type() == loss.scalar_type() &&
         one.device() == loss.device();
}

// If the loss is a view of a parameter, the parameter's gradient uses this memory, which clipping, for example, then
// modifies; a hook may keep it or modify it.
bool LossGradient::untouched(const at::Tensor& one) const {
  return one.use_count() == 1 && one.storage().use_count() == 1 && one._version() == version_;
}

}  // namespace levin
