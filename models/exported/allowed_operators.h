// The operators that a program from a stranger may call, and what must hold before each call. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/core/options/error.h"

namespace levin::exported {

/// Whether torch.export writes calls of this ATen operator for models, and the operator cannot reach memory outside of
/// its tensors once argument_check() has seen its arguments. See docs/exported_models.md for the operators that are
/// left out.
[[nodiscard]] bool is_allowed_operator(const c10::FunctionSchema& schema);

// What LibTorch's operators do not check themselves: arguments that would let them read or write outside of their
// tensors.

/// The least and the greatest integer that an argument takes.
struct IntegerRange {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;

  [[nodiscard]] bool holds(int64_t value) const { return value >= least && value <= most; }
};

/// The range of an integer argument, or of each item of a list, by its name: products of kernel sizes, strides and
/// paddings must not overflow, and a mode must be one that the operator has.
[[nodiscard]] IntegerRange integer_range(const c10::Argument& argument);

/// The arguments of a call by their names in the schema. An argument that the schema does not have is None.
class CallArguments {
 public:
  CallArguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values)
      : schema_(schema), values_(values) {}

  [[nodiscard]] const std::string& name() const { return schema_.name(); }
  [[nodiscard]] const std::string& overload() const { return schema_.overload_name(); }
  [[nodiscard]] const c10::IValue& at(const std::string& name) const {
    static const c10::IValue none;
    const auto index = schema_.argumentIndexWithName(name);
    return index ? values_.at(static_cast<size_t>(*index)) : none;
  }
  /// Undefined if the argument is None.
  [[nodiscard]] at::Tensor tensor(const std::string& name) const {
    const c10::IValue& value = at(name);
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  /// Throws Error if the argument is not a tensor.
  [[nodiscard]] at::Tensor defined_tensor(const std::string& name) const {
    at::Tensor found = tensor(name);
    if (!found.defined()) throw Error(name + " is not a tensor.");
    return found;
  }
  /// A list of tensors, or one tensor as a list of one.
  [[nodiscard]] std::vector<at::Tensor> tensors(const std::string& name) const {
    return at(name).isTensor() ? std::vector{tensor(name)} : at(name).toTensorVector();
  }
  [[nodiscard]] int64_t integer(const std::string& name) const { return at(name).toInt(); }
  [[nodiscard]] bool boolean(const std::string& name) const { return at(name).isBool() && at(name).toBool(); }
  [[nodiscard]] std::vector<int64_t> integers(const std::string& name) const { return at(name).toIntVector(); }

 private:
  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue>& values_;
};

/// Throws Error if an operator with these arguments would reach outside of its tensors. Reads indices and lengths of
/// tensors on the CPU; kernels on other devices check their own.
using ArgumentCheck = void (*)(const CallArguments& call);

/// The check that an operator ("aten::ctc_loss") needs before each call; null if LibTorch checks its arguments.
[[nodiscard]] ArgumentCheck argument_check(const std::string& name);

// Checks of Python's layers that their operators lack, and that an export leaves out.

/// Returns the check of an operator's arguments, which throws Error, or nothing: the checks of torch.nn.functional's
/// batch_norm, instance_norm and group_norm, without which a batch of one value per channel gives a variance of nan.
[[nodiscard]] std::function<void(const std::vector<c10::IValue>&)> layer_check(const c10::FunctionSchema& schema);

// Which argument of an operator says whether it trains.

/// The argument's name; "" if the operator is the same in training and evaluation. `op`: "aten::dropout".
[[nodiscard]] std::string mode_argument(const std::string& op);

}  // namespace levin::exported
