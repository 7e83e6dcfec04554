#include "levin/strategies/gradient_sync.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>

namespace levin {

at::Tensor GradientSync::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  gradient_.backward(loss);
  return sync ? own : at::Tensor();
}

void GradientSync::run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss) {
  for (size_t k = 0; k < count; ++k) {
    const at::Tensor part = loss(k);
    if (part.defined()) (void)backward(part, k + 1 == count, {});
  }
}

at::Tensor notes_tensor(const RankNotes& notes) {
  const auto numbers = notes.numbers();
  return at::tensor(at::ArrayRef<double>(numbers.data(), numbers.size()));
}

RankNotes notes_of(const at::Tensor& numbers) {
  const at::Tensor here = numbers.to(at::kCPU, at::kDouble).contiguous();
  std::array<double, kRankNotes> read = {};
  std::copy_n(here.const_data_ptr<double>(), read.size(), read.begin());
  return RankNotes::from(read);
}

}  // namespace levin
