#include "levin/models/huggingface/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>

#include <numbers>

namespace levin::huggingface {

namespace {

// Each head of keys for as many heads of queries in a row as share it.
at::Tensor for_each_query_head(const at::Tensor& x, int64_t heads) {
  const int64_t own = x.size(1);
  if (own == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), own, heads / own, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

}  // namespace

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

// Llama 3 keeps short wavelengths, divides the speeds of long ones by `factor`, and blends between the two
// (https://arxiv.org/abs/2407.21783, section 3.4.3; the formula is that of Meta's llama-models).
at::Tensor rope_frequencies(const RopeConfig& rope, int64_t head_width) {
  const at::Tensor exponents = at::arange(0, head_width, 2, at::kFloat) / static_cast<double>(head_width);
  at::Tensor speeds = at::pow(rope.rope_theta, exponents).reciprocal();
  if (rope.rope_type == "linear") return speeds / rope.factor;
  if (rope.rope_type != "llama3") return speeds;
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor wavelengths = 2 * std::numbers::pi / speeds;
  const at::Tensor share = (trained / wavelengths - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor);  // of the unchanged speed, in between
  const at::Tensor blended = (1 - share) * speeds / rope.factor + share * speeds;
  const at::Tensor long_too = at::where(wavelengths > trained / rope.low_freq_factor, speeds / rope.factor, blended);
  return at::where(wavelengths < trained / rope.high_freq_factor, speeds, long_too);
}

std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& frequencies, int64_t tokens, const at::Tensor& x) {
  const at::Tensor speeds = frequencies.to(x.device());
  const at::Tensor half = at::arange(tokens, speeds.options()).unsqueeze(1) * speeds.unsqueeze(0);
  const at::Tensor angles = at::cat({half, half}, -1);
  return {angles.cos().to(x.scalar_type()), angles.sin().to(x.scalar_type())};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const auto halves = x.chunk(2, -1);
  return x * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

}  // namespace levin::huggingface
