// Python's operators on numbers, by which an exported program computes sizes: _operator.floordiv, torch.sym_max, …
// Internal.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace levin::exported {

/// `arguments` and the result are numbers (int64, double or bool), with Python's meaning: floordiv and mod round down,
/// and truediv gives a double. Throws Error where Python does: a division by zero.
using NumberOperator = c10::IValue (*)(const std::vector<c10::IValue>& arguments);

/// Null if there is none of that name with that many arguments.
[[nodiscard]] NumberOperator number_operator(const std::string& target, size_t arguments);

}  // namespace levin::exported
