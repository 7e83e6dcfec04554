// The tensors in a value of an operator's stack. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace levin {

[[nodiscard]] inline bool holds_tensors(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
}

/// In order, undefined ones too.
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
