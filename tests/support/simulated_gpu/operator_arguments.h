// An operator's arguments and results on the simulated GPU, and in the host memory that holds their contents.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <functional>

namespace simulated {

using torch::jit::Stack;

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& function);

/// Returns a CPU tensor of the contents of a GPU tensor, without keeping them alive. A host number is copied, because
/// its owner may change it before the stream reaches it.
[[nodiscard]] at::Tensor on_cpu(const at::Tensor& tensor);
[[nodiscard]] Stack on_cpu(const Stack& values);
/// Like on_cpu(), but with separate memory.
[[nodiscard]] Stack copies_on_cpu(const Stack& values);
/// Uninitialized GPU tensors of the same sizes and strides.
[[nodiscard]] Stack on_device(const Stack& results);
/// `places`: on_cpu(on_device(results)).
void fill(const Stack& places, const Stack& results);

[[nodiscard]] bool writes_arguments(const c10::FunctionSchema& schema);

}  // namespace simulated
