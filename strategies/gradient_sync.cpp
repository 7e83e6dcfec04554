#include "levin/strategies/gradient_sync.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <utility>

#include "levin/libtorch/thread_state.h"

namespace levin {

void LossGradient::backward(const at::Tensor& loss) {
  if (own_) return own_(loss);
  const AutogradThreads threads(!on_this_thread_);
  run(loss);
}

void LossGradient::run(const at::Tensor& loss) {
  if (loss.numel() != 1) return loss.backward();  // throws the right error
  if (!reuses_) return loss.backward();
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

RankFlags GradientSync::backward(const at::Tensor& loss, bool sync, const RankFlags& own) {
  local_.backward(loss);
  return sync ? own : RankFlags();
}

void GradientSync::run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss) {
  for (size_t k = 0; k < count; ++k) {
    const at::Tensor part = loss(k);
    if (part.defined()) (void)backward(part, k + 1 == count, {});
  }
}

at::Tensor flags_tensor(const RankFlags& flags) {
  const auto numbers = flags.numbers();
  return at::tensor(at::ArrayRef<double>(numbers.data(), numbers.size()));
}

RankFlags flags_of(const at::Tensor& numbers) {
  const at::Tensor here = numbers.to(at::kCPU, at::kDouble).contiguous();
  std::array<double, kRankFlags> read = {};
  std::copy_n(here.const_data_ptr<double>(), read.size(), read.begin());
  return RankFlags::from(read);
}

}  // namespace levin
