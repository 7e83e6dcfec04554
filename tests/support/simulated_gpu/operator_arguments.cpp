#include "operator_arguments.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "memory.h"

namespace simulated {

namespace {

using Change = std::function<at::Tensor(const at::Tensor&)>;

c10::IValue changed(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return value.toTensor().defined() ? change(value.toTensor()) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor.defined() ? change(tensor) : tensor);
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> all;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      all.push_back(tensor ? std::optional(change(*tensor)) : std::nullopt);
    }
    return all;
  }
  return value.isDevice() ? c10::IValue(at::Device(at::kCPU)) : value;
}

Stack changed(const Stack& values, const Change& change) {
  Stack all;
  for (const auto& value : values) all.push_back(changed(value, change));
  return all;
}

// A Python number that became a tensor does not decide the result's type.
at::Tensor copy_of(const at::Tensor& tensor) {
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

}  // namespace

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& function) {
  if (value.isTensor() && value.toTensor().defined()) function(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& tensor : value.toTensorVector()) {
    if (tensor.defined()) function(tensor);
  }
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor.is_cpu() && tensor.dim() == 0 ? copy_of(tensor) : tensor;
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  at::Tensor here =
      at::from_blob(DeviceMemory::instance().on_host(tensor.data_ptr()), tensor.sizes(), tensor.strides(), options);
  here._set_conj(tensor.is_conj());
  here._set_neg(tensor.is_neg());
  return here;
}

Stack on_cpu(const Stack& values) {
  return changed(values, [](const at::Tensor& tensor) { return on_cpu(tensor); });
}

Stack copies_on_cpu(const Stack& values) {
  return changed(values, [](const at::Tensor& tensor) { return copy_of(on_cpu(tensor)); });
}

Stack on_device(const Stack& results) {
  return changed(results, [](const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCUDA));
  });
}

void fill(const Stack& places, const Stack& results) {
  const c10::InferenceMode no_versions;
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<at::Tensor> to, from;
    for_each_tensor(places[i], [&](const at::Tensor& tensor) { to.push_back(tensor); });
    for_each_tensor(results[i], [&](const at::Tensor& tensor) { from.push_back(tensor); });
    for (size_t k = 0; k < to.size(); ++k) to[k].copy_(from[k]);
  }
}

bool writes_arguments(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

}  // namespace simulated
