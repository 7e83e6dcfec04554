#include "levin/adapters/quantized_weight.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_weight_int8pack_mm.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 64;  // numbers of nf4 that share a scale

// Appendix E of the article: the levels of a normal distribution, with an exact 0.
constexpr std::array<float, 16> kLevels = {-1.0F,
                                           -0.6961928009986877F,
                                           -0.5250730514526367F,
                                           -0.39491748809814453F,
                                           -0.28444138169288635F,
                                           -0.18477343022823334F,
                                           -0.09105003625154495F,
                                           0.0F,
                                           0.07958029955625534F,
                                           0.16093020141124725F,
                                           0.24611230194568634F,
                                           0.33791524171829224F,
                                           0.44070982933044434F,
                                           0.5626170039176941F,
                                           0.7229568362236023F,
                                           1.0F};

// ATen's kernel for int8 is the faster way up to here, and only in bfloat16. Measured on one core with AVX-512, 768 x
// 768: 8 rows 60 us instead of 197 us, 64 rows 475 us instead of 325 us; in float32 it has no vectorized loop.
constexpr int64_t kMaxKernelRows = 32;

at::Tensor on(at::Device device, const std::vector<float>& numbers, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<float>());
  return tensor.to(device);
}

// The numbers of both halves of every byte: (256, 2).
at::Tensor table_of_bytes(at::Device device) {
  std::vector<float> numbers;
  for (size_t byte = 0; byte < 256; ++byte) {
    numbers.push_back(kLevels[byte >> 4]);
    numbers.push_back(kLevels[byte & 15]);
  }
  return on(device, numbers, {256, 2});
}

at::Tensor limits_of_levels(at::Device device) {
  std::vector<float> limits;
  for (size_t k = 0; k + 1 < kLevels.size(); ++k) limits.push_back((kLevels[k] + kLevels[k + 1]) / 2);
  return on(device, limits, {static_cast<int64_t>(limits.size())});
}

// A dimension of zeros has any scale.
at::Tensor without_zeros(const at::Tensor& scales) {
  return scales.masked_fill(scales.eq(0), 1);
}

QuantizedWeight to_int8(const at::Tensor& matrix, bool is_in_out) {
  const at::Tensor wide = matrix.to(at::kFloat);
  const at::Tensor scales = without_zeros(wide.abs().amax(is_in_out ? 0 : 1) / 127);
  const at::Tensor values = (wide / (is_in_out ? scales : scales.unsqueeze(1))).round().to(at::kChar);
  return {values.contiguous(), scales};
}

QuantizedWeight to_nf4(const at::Tensor& matrix) {
  const at::Tensor blocks = matrix.to(at::kFloat).contiguous().view({-1, kBlock});
  const at::Tensor scales = without_zeros(blocks.abs().amax(1));
  const at::Tensor levels =
      at::bucketize(blocks / scales.unsqueeze(1), limits_of_levels(matrix.device())).to(at::kByte).view({-1, 2});
  const at::Tensor bytes = levels.select(1, 0).mul(16).add(levels.select(1, 1));
  return {bytes.view({matrix.size(0), matrix.size(1) / 2}).contiguous(), scales};
}

at::Tensor from_nf4(const QuantizedWeight& weight, const QuantizedForm& form) {
  const at::Tensor bytes = weight.values.reshape({-1}).to(at::kInt);
  const at::Tensor numbers = table_of_bytes(bytes.device()).index_select(0, bytes);
  return numbers.view({-1, kBlock}).mul_(weight.scales.to(at::kFloat).unsqueeze(1)).view(form.shape);
}

at::Tensor from_int8(const QuantizedWeight& weight, const QuantizedForm& form) {
  const at::Tensor scales = weight.scales.to(at::kFloat);
  return weight.values.to(at::kFloat).mul_(form.is_in_out ? scales : scales.unsqueeze(1));
}

bool suits_kernel(const at::Tensor& x, const QuantizedForm& form) {
  return form.kind == Quantize::int8 && !form.is_in_out && x.is_cpu() && x.scalar_type() == at::kBFloat16 &&
         x.numel() <= kMaxKernelRows * x.size(-1) && x.numel() > 0;
}

at::Tensor by_kernel(const at::Tensor& x, const QuantizedWeight& weight) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.values.size(0);
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
  return at::_weight_int8pack_mm(rows, weight.values, weight.scales.to(x.scalar_type())).view(shape);
}

// (out, in)
at::Tensor out_in(const QuantizedWeight& weight, const QuantizedForm& form, at::ScalarType dtype) {
  const at::Tensor matrix = dequantize_weight(weight, form, dtype);
  return form.is_in_out ? matrix.t() : matrix;
}

class QuantizedLinear : public torch::autograd::Function<QuantizedLinear> {
 public:
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& values,
                          const at::Tensor& scales, const QuantizedForm& form) {
    context->save_for_backward({values, scales});
    context->saved_data["kind"] = static_cast<int64_t>(form.kind);
    context->saved_data["shape"] = form.shape;
    context->saved_data["is_in_out"] = form.is_in_out;
    const QuantizedWeight weight{values, scales};
    if (suits_kernel(x, form)) return by_kernel(x, weight);
    return at::linear(x, out_in(weight, form, x.scalar_type()));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const QuantizedForm form{.kind = static_cast<Quantize>(context->saved_data["kind"].toInt()),
                             .shape = context->saved_data["shape"].toIntVector(),
                             .is_in_out = context->saved_data["is_in_out"].toBool()};
    const at::Tensor& gradient = gradients[0];
    const at::Tensor matrix = out_in({saved[0], saved[1]}, form, gradient.scalar_type());
    return {at::matmul(gradient, matrix), Variable(), Variable(), Variable()};
  }
};

}  // namespace

void check_quantizable(at::IntArrayRef shape, Quantize kind, const std::string& name) {
  if (kind != Quantize::nf4 || (shape[1] % 2 == 0 && shape[0] * shape[1] % kBlock == 0)) return;
  throw ConfigError("LoRAOptions.quantize: nf4 cannot hold " + name + ".weight " + shape_text(shape) +
                    ": its columns must be even and its numbers a multiple of " + std::to_string(kBlock) +
                    ". Use int8, or name it in exclude_modules.");
}

QuantizedWeight quantize_weight(const at::Tensor& matrix, const QuantizedForm& form) {
  return form.kind == Quantize::int8 ? to_int8(matrix, form.is_in_out) : to_nf4(matrix);
}

at::Tensor dequantize_weight(const QuantizedWeight& weight, const QuantizedForm& form, at::ScalarType dtype) {
  return (form.kind == Quantize::int8 ? from_int8(weight, form) : from_nf4(weight, form)).to(dtype);
}

at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight, const QuantizedForm& form) {
  const auto device = x.device().type();
  const bool casts = at::autocast::is_autocast_enabled(device);
  const at::Tensor input = casts ? x.to(at::autocast::get_autocast_dtype(device)) : x;
  return QuantizedLinear::apply(input, weight.values, weight.scales, form);
}

}  // namespace levin
