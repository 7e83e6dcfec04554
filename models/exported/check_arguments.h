// What LibTorch's operators do not check themselves: arguments that would let them read or write outside of their
// tensors. Internal.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace levin::exported {

/// The least and the greatest integer that an argument takes.
struct IntegerRange {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;

  [[nodiscard]] bool holds(int64_t value) const { return value >= least && value <= most; }
};

/// The range of an integer argument, or of each item of a list, by its name: products of kernel sizes, strides and
/// paddings must not overflow, and a mode must be one that the operator has.
[[nodiscard]] IntegerRange integer_range(const c10::Argument& argument);

/// Throws Error if an operator with these arguments would reach outside of its tensors. Reads indices and lengths of
/// tensors on the CPU; kernels on other devices check their own.
using ArgumentCheck = void (*)(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);

/// The check that an operator ("aten::ctc_loss") needs before each call; null if LibTorch checks its arguments.
[[nodiscard]] ArgumentCheck argument_check(const std::string& name);

}  // namespace levin::exported
