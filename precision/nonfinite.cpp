#include "levin/precision/nonfinite.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <atomic>
#include <bit>
#include <cstdint>

namespace levin {

namespace {

constexpr int64_t kNumbersOfThread = int64_t{1} << 17;  // fewer are read faster than a thread is woken

// All exponent bits are set in inf and nan alone: then the sum carries into the sign bit. The loop has no branch, so
// the compiler vectorizes it.
template <class Number, class Word>
bool any_nonfinite(const void* data, int64_t count, Word exponent) {
  const auto* numbers = static_cast<const Number*>(data);
  const auto lowest = static_cast<Word>(exponent & (~exponent + 1));
  std::atomic<bool> found = false;
  at::parallel_for(0, count, kNumbersOfThread, [&](int64_t begin, int64_t end) {
    Word carried = 0;
    for (int64_t i = begin; i < end; ++i) {
      carried = static_cast<Word>(carried | ((std::bit_cast<Word>(numbers[i]) & exponent) + lowest));
    }
    if ((carried >> (8 * sizeof(Word) - 1)) != 0) found = true;
  });
  return found;
}

}  // namespace

void scale_and_check(const std::vector<std::vector<at::Tensor>>& kinds, at::Tensor& found, const at::Tensor& factor) {
  for (const auto& grads : kinds) {
    const at::Device device = grads[0].device();
    if (device == factor.device()) {
      at::_amp_foreach_non_finite_check_and_unscale_(grads, found, factor);
    } else {
      at::Tensor there = at::zeros_like(found, found.options().device(device));
      at::_amp_foreach_non_finite_check_and_unscale_(grads, there, factor.to(device));
      found.copy_(at::maximum(found, there.to(found.device())));
    }
  }
}

bool has_nonfinite(const at::Tensor& tensor) {
  const at::Tensor here = tensor.is_cpu() ? tensor : tensor.cpu();
  const at::Tensor dense = here.is_non_overlapping_and_dense() ? here : here.contiguous();
  const void* data = dense.const_data_ptr();
  switch (dense.scalar_type()) {
    case at::kFloat: return any_nonfinite<float, uint32_t>(data, dense.numel(), 0x7f800000U);
    case at::kDouble: return any_nonfinite<double, uint64_t>(data, dense.numel(), 0x7ff0000000000000U);
    case at::kBFloat16: return any_nonfinite<c10::BFloat16, uint16_t>(data, dense.numel(), 0x7f80U);
    case at::kHalf: return any_nonfinite<c10::Half, uint16_t>(data, dense.numel(), 0x7c00U);
    default: return !dense.isfinite().all().item<bool>();
  }
}

}  // namespace levin
