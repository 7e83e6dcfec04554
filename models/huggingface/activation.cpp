#include "levin/models/huggingface/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <numbers>
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
at::Tensor clipped_gelu(const at::Tensor& x) {
  return at::clamp(at::gelu(x), -10, 10);
}
at::Tensor quick_gelu(const at::Tensor& x) {
  return x * at::sigmoid(x * 1.702);
}
at::Tensor hardswish_of(const at::Tensor& x) {
  return at::hardswish(x);
}
// Ma et al. 2022, Mega, https://arxiv.org/abs/2209.10655, with the numbers of transformers.
at::Tensor laplace(const at::Tensor& x) {
  return (at::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)) + 1) * 0.5;
}
at::Tensor leaky_relu_of(const at::Tensor& x) {
  return at::leaky_relu(x);
}
at::Tensor linear_of(const at::Tensor& x) {
  return x;
}
at::Tensor mish_of(const at::Tensor& x) {
  return at::mish(x);
}
at::Tensor relu_of(const at::Tensor& x) {
  return at::relu(x);
}
at::Tensor squared_relu(const at::Tensor& x) {
  return at::relu(x).square();
}
at::Tensor relu6_of(const at::Tensor& x) {
  return at::clamp(x, 0, 6);
}
at::Tensor sigmoid_of(const at::Tensor& x) {
  return at::sigmoid(x);
}
at::Tensor silu_of(const at::Tensor& x) {
  return at::silu(x);
}
at::Tensor sqrt_softplus(const at::Tensor& x) {
  return at::softplus(x).sqrt();
}
at::Tensor tanh_of(const at::Tensor& x) {
  return at::tanh(x);
}

// The names of the tanh approximation differ in how Python computes the same formula. Not here: those with weights of
// their own (prelu, xielu).
constexpr auto kActivations = std::to_array<std::pair<const char*, Activation>>({{"gelu", exact_gelu},
                                                                                 {"gelu_python", exact_gelu},
                                                                                 {"gelu_10", clipped_gelu},
                                                                                 {"gelu_new", tanh_gelu},
                                                                                 {"gelu_fast", tanh_gelu},
                                                                                 {"gelu_accurate", tanh_gelu},
                                                                                 {"gelu_pytorch_tanh", tanh_gelu},
                                                                                 {"gelu_python_tanh", tanh_gelu},
                                                                                 {"quick_gelu", quick_gelu},
                                                                                 {"hardswish", hardswish_of},
                                                                                 {"laplace", laplace},
                                                                                 {"leaky_relu", leaky_relu_of},
                                                                                 {"linear", linear_of},
                                                                                 {"mish", mish_of},
                                                                                 {"relu", relu_of},
                                                                                 {"relu2", squared_relu},
                                                                                 {"relu6", relu6_of},
                                                                                 {"sigmoid", sigmoid_of},
                                                                                 {"silu", silu_of},
                                                                                 {"sqrtsoftplus", sqrt_softplus},
                                                                                 {"swish", silu_of},
                                                                                 {"tanh", tanh_of}});

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
