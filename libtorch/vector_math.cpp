#include "levin/libtorch/vector_math.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/acos_cpu_dispatch.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/log10_cpu_dispatch.h>
#include <ATen/ops/log2_cpu_dispatch.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/tan_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/trunc_cpu_dispatch.h>

namespace levin {

namespace {

// The functions of ATen/cpu/vml.h, each once; without the dispatcher, whose modes would see them.
template <class Number>
void compute_one_element() {
  const at::Tensor one = at::detail::empty_cpu({1}, c10::CppTypeToScalarType<Number>::value);
  *one.mutable_data_ptr<Number>() = 0.5;
  for (auto* function : {at::cpu::acos, at::cpu::asin, at::cpu::atan, at::cpu::cos, at::cpu::erf, at::cpu::erfc,
                         at::cpu::erfinv, at::cpu::exp, at::cpu::log, at::cpu::log10, at::cpu::log2, at::cpu::sin,
                         at::cpu::sqrt, at::cpu::tan, at::cpu::tanh, at::cpu::trunc}) {
    function(one);
  }
}

}  // namespace

void choose_vector_math() {
  [[maybe_unused]] static const bool chosen = [] {
    compute_one_element<float>();
    compute_one_element<double>();
    return true;
  }();
}

}  // namespace levin
