// A frozen matrix in 8 or 4 bits, and its product. Forward and backward make the matrix anew from its bits, so that the
// graph keeps the bits alone. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/adapters/lora_options.h"

namespace levin {

/// What the bits do not say themselves.
struct QuantizedForm {
  Quantize kind = Quantize::int8;
  std::vector<int64_t> shape = {};  // of the matrix: (out, in), or (in, out)
  bool is_in_out = false;
  at::ScalarType dtype = at::kFloat;  // of the matrix before
};

/// int8: `values` int8 in the matrix's shape, `scales` float32 (out): matrix = values * scale, the largest absolute
/// value of an output being 127. nf4: `values` uint8 (rows, columns / 2), two numbers a byte, the first in the high
/// bits; `scales` float32 (blocks), of 64 numbers each in the matrix's order: number = level * scale (Dettmers et al.
/// 2023, https://arxiv.org/abs/2305.14314, section 3 and appendix E; without double quantization).
struct QuantizedWeight {
  at::Tensor values;
  at::Tensor scales;
};

/// Throws ConfigError naming the layer `name` for a matrix that nf4 cannot hold: its columns must be even, its numbers
/// a multiple of 64.
void check_quantizable(at::IntArrayRef shape, Quantize kind, const std::string& name);

/// Requires a matrix that check_quantizable accepts.
[[nodiscard]] QuantizedWeight quantize_weight(const at::Tensor& matrix, const QuantizedForm& form);

/// The matrix again, in `dtype`.
[[nodiscard]] at::Tensor dequantize_weight(const QuantizedWeight& weight, const QuantizedForm& form,
                                           at::ScalarType dtype);

/// x (…, in) times the matrix, (…, out), in x's type, or autocast's; with a graph to x alone.
[[nodiscard]] at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                                          const QuantizedForm& form);

}  // namespace levin
