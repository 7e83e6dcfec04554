// Autocast's lists for the test device: LibTorch's own, which every backend outside it has to register.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

#define LEVIN_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LEVIN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LEVIN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LEVIN_LOWER)
  AT_FORALL_FP32(LEVIN_FP32)
  AT_FORALL_PROMOTE(LEVIN_PROMOTE)
}

}  // namespace at::autocast
