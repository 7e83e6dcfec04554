// An operator's arguments and results, on the simulated GPU and behind it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <functional>

namespace simulated {

using torch::jit::Stack;

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& function);

/// Its memory behind the GPU's, as a tensor of the CPU, which does not keep it alive. A number of the host is copied:
/// its owner may change it before the stream comes to it.
[[nodiscard]] at::Tensor on_cpu(const at::Tensor& tensor);
[[nodiscard]] Stack on_cpu(const Stack& values);
/// With memory of their own.
[[nodiscard]] Stack copies_on_cpu(const Stack& values);
/// Tensors of the GPU of the same sizes and strides, with nothing in them.
[[nodiscard]] Stack on_device(const Stack& results);
/// `places`: on_cpu(on_device(results)).
void fill(const Stack& places, const Stack& results);

[[nodiscard]] bool writes_arguments(const c10::FunctionSchema& schema);

}  // namespace simulated
