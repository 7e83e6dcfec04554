// An operator's kernel, and properties of its schema and values, for code that sees operators (observers, recorders,
// tracers). Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace levin {

/// Whether the operator writes into the argument.
[[nodiscard]] inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Whether the operator draws random numbers.
[[nodiscard]] inline bool is_random(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

/// Calls the operator's kernel for `keys`, without what the dispatcher has above it.
inline void call_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  op.redispatchBoxed(keys, &stack);
}

/// Whether the tensor stands for a number, like the tensors that operators make of C++ numbers: type promotion then
/// treats it as a number.
[[nodiscard]] inline bool is_wrapped_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}
/// Makes the tensor, which must have no dimensions, stand for a number.
inline void wrap_number(const at::Tensor& tensor) {
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
}

[[nodiscard]] inline bool holds_tensors(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
}

/// The tensors of a value in order, undefined ones too.
template <class Visit>
void each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) visit(tensor.value_or(at::Tensor()));
  }
}

}  // namespace levin
