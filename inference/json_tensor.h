// Tensors as JSON text, for programs that serve predictions: nested lists of numbers.
//
//   const at::Tensor x = tensor_from_json("[[0.5, 1, -2e-3], [0, 0, 1]]");   // (2, 3) float32
//   tensor_to_json(x);                                                       // "[[0.5,1,-0.002],[0,0,1]]"
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace levin {

/// `dtype`: a floating-point or integer type, or at::kBool. Lists of one level have the same length. Nothing in the
/// text is trusted: throws DataError for text that is not JSON, for lists of unequal lengths, for a value that is not a
/// number, and for a number that the type cannot hold, with its position ("[1][0]").
[[nodiscard]] at::Tensor tensor_from_json(const std::string& text, at::ScalarType dtype = at::kFloat);

/// Returns one line; each number with the digits that read back to it. Nan and infinities, for which JSON has no
/// numbers, become null. Throws Error for a complex tensor, and for one that is undefined.
[[nodiscard]] std::string tensor_to_json(const at::Tensor& tensor);

}  // namespace levin
