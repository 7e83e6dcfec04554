// Activation functions by Hugging Face's names (transformers/activations.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace levin::huggingface {

[[nodiscard]] bool is_activation(const std::string& name);
[[nodiscard]] std::vector<std::string> activation_names();

using Activation = at::Tensor (*)(const at::Tensor&);
/// The function of a name that is_activation; throws Error for another.
[[nodiscard]] Activation activation(const std::string& name);

}  // namespace levin::huggingface
