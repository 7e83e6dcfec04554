#include "levin/models/huggingface/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <utility>

#include "levin/core/error.h"

namespace levin::huggingface {

namespace {

at::Tensor exact_gelu(const at::Tensor& x) {
  return at::gelu(x);
}
at::Tensor tanh_gelu(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}
at::Tensor quick_gelu(const at::Tensor& x) {
  return x * at::sigmoid(x * 1.702);
}
at::Tensor relu_of(const at::Tensor& x) {
  return at::relu(x);
}
at::Tensor silu_of(const at::Tensor& x) {
  return at::silu(x);
}
at::Tensor tanh_of(const at::Tensor& x) {
  return at::tanh(x);
}

// The names of the tanh approximation differ in how Python computes the same formula.
constexpr std::array<std::pair<const char*, Activation>, 10> kActivations{{{"gelu", exact_gelu},
                                                                           {"gelu_python", exact_gelu},
                                                                           {"gelu_new", tanh_gelu},
                                                                           {"gelu_fast", tanh_gelu},
                                                                           {"gelu_pytorch_tanh", tanh_gelu},
                                                                           {"quick_gelu", quick_gelu},
                                                                           {"relu", relu_of},
                                                                           {"silu", silu_of},
                                                                           {"swish", silu_of},
                                                                           {"tanh", tanh_of}}};

Activation find_activation(const std::string& name) {
  for (const auto& [known, function] : kActivations) {
    if (name == known) return function;
  }
  return nullptr;
}

}  // namespace

bool is_activation(const std::string& name) {
  return find_activation(name) != nullptr;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : kActivations) names.emplace_back(name);
  return names;
}

Activation activation(const std::string& name) {
  if (const Activation found = find_activation(name)) return found;
  throw Error("unknown activation \"" + cut_text(name) + "\". Known: " + join(activation_names()) + ".");
}

}  // namespace levin::huggingface
