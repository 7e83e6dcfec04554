#include "levin/models/huggingface/functional.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <numbers>
#include <utility>

#include "levin/core/options/error.h"

namespace levin::huggingface {

namespace {

using T = const at::Tensor&;

// The names of the tanh approximation differ in how Python computes the same formula. Activations with weights of their
// own (prelu, xielu) are left out.
constexpr auto kActivations = std::to_array<std::pair<const char*, Activation>>({
    {"gelu", [](T x) { return at::gelu(x); }},
    {"gelu_python", [](T x) { return at::gelu(x); }},
    {"gelu_10", [](T x) { return at::clamp(at::gelu(x), -10, 10); }},
    {"gelu_new", [](T x) { return at::gelu(x, "tanh"); }},
    {"gelu_fast", [](T x) { return at::gelu(x, "tanh"); }},
    {"gelu_accurate", [](T x) { return at::gelu(x, "tanh"); }},
    {"gelu_pytorch_tanh", [](T x) { return at::gelu(x, "tanh"); }},
    {"gelu_python_tanh", [](T x) { return at::gelu(x, "tanh"); }},
    {"quick_gelu", [](T x) { return x * at::sigmoid(x * 1.702); }},
    {"hardswish", [](T x) { return at::hardswish(x); }},
    // Ma et al. 2022, Mega, https://arxiv.org/abs/2209.10655, with the numbers of transformers.
    {"laplace", [](T x) { return (at::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)) + 1) * 0.5; }},
    {"leaky_relu", [](T x) { return at::leaky_relu(x); }},
    {"linear", [](T x) { return x; }},
    {"mish", [](T x) { return at::mish(x); }},
    {"relu", [](T x) { return at::relu(x); }},
    {"relu2", [](T x) { return at::relu(x).square(); }},
    {"relu6", [](T x) { return at::clamp(x, 0, 6); }},
    {"sigmoid", [](T x) { return at::sigmoid(x); }},
    {"silu", [](T x) { return at::silu(x); }},
    {"sqrtsoftplus", [](T x) { return at::softplus(x).sqrt(); }},
    {"swish", [](T x) { return at::silu(x); }},
    {"tanh", [](T x) { return at::tanh(x); }},
});

Activation find_activation(const std::string& name) {
  for (const auto& [known, function] : kActivations) {
    if (name == known) return function;
  }
  return nullptr;
}

// Each head of keys for as many heads of queries in a row as share it.
at::Tensor for_each_query_head(const at::Tensor& x, int64_t heads) {
  const int64_t own = x.size(1);
  if (own == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), own, heads / own, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
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

at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask,
                  const AttentionSettings& settings) {
  const int64_t heads = query.size(1);
  const std::optional<at::Tensor> given = mask.defined() ? std::optional(mask) : std::nullopt;
  const at::Tensor seen =
      at::scaled_dot_product_attention(query, for_each_query_head(key, heads), for_each_query_head(value, heads), given,
                                       settings.dropout, settings.is_causal && !given, settings.scale);
  return seen.transpose(1, 2).reshape({query.size(0), query.size(2), heads * query.size(3)});
}

at::Tensor padding_mask(const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  return attention_mask.to(at::kBool).unsqueeze(1).unsqueeze(2);
}

at::Tensor causal_mask(const at::Tensor& ids, const at::Tensor& attention_mask, std::optional<int64_t> window) {
  const int64_t tokens = ids.size(1);
  const bool is_narrow = window && *window < tokens;
  if (!attention_mask.defined() && !is_narrow) return {};
  at::Tensor mask = at::ones({tokens, tokens}, ids.options().dtype(at::kBool)).tril();
  if (is_narrow) mask = mask.triu(1 - *window);  // a token and the window - 1 before it
  const at::Tensor padding = padding_mask(attention_mask);
  return padding.defined() ? mask.logical_and(padding) : mask.unsqueeze(0).unsqueeze(0);
}

std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& frequencies, double scale, int64_t tokens,
                                             const at::Tensor& x) {
  const at::Tensor speeds = frequencies.to(x.device());
  const at::Tensor half = at::arange(tokens, speeds.options()).unsqueeze(1) * speeds.unsqueeze(0);
  const at::Tensor angles = at::cat({half, half}, -1);
  return {(angles.cos() * scale).to(x.scalar_type()), (angles.sin() * scale).to(x.scalar_type())};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const int64_t rotated = cosines.size(-1), width = x.size(-1);
  const at::Tensor turning = x.slice(-1, 0, rotated);
  const auto halves = turning.chunk(2, -1);
  const at::Tensor turned = turning * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
  return rotated == width ? turned : at::cat({turned, x.slice(-1, rotated)}, -1);
}

}  // namespace levin::huggingface
