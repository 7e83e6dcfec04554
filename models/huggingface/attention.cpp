#include "levin/models/huggingface/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
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

namespace {

// Llama 3 keeps short wavelengths, divides the speeds of long ones by `factor`, and blends between the two
// (https://arxiv.org/abs/2407.21783, section 3.4.3; the formula is that of Meta's llama-models).
at::Tensor llama3_frequencies(const RopeConfig& rope, const at::Tensor& speeds) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor wavelengths = 2 * std::numbers::pi / speeds;
  const at::Tensor share = (trained / wavelengths - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor);  // of the unchanged speed, in between
  const at::Tensor blended = (1 - share) * speeds / rope.scaling() + share * speeds;
  const at::Tensor long_too = at::where(wavelengths > trained / rope.low_freq_factor, speeds / rope.scaling(), blended);
  return at::where(wavelengths < trained / rope.high_freq_factor, speeds, long_too);
}

// YaRN (Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.2): pairs that turn more than beta_fast times
// within the trained length keep their speed, those that turn less than beta_slow times are divided by `factor`, and in
// between lies a ramp over the pairs' numbers.
at::Tensor yarn_frequencies(const RopeConfig& rope, const at::Tensor& speeds) {
  const auto width = static_cast<double>(2 * speeds.numel());
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const auto pair_that_turns = [&](double times) {
    return width * std::log(trained / (times * 2 * std::numbers::pi)) / (2 * std::log(rope.rope_theta));
  };
  double first = pair_that_turns(rope.beta_fast), last = pair_that_turns(rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, width - 1);
  if (first == last) last += 0.001;
  const at::Tensor stretched =
      at::clamp((at::arange(speeds.numel(), at::kFloat) - first) / (last - first), 0, 1);  // share of the divided speed
  return speeds / rope.scaling() * stretched + speeds * (1 - stretched);
}

}  // namespace

// As transformers computes them (modeling_rope_utils.py), with the length of the samples at hand where it remembers the
// longest one before.
at::Tensor rope_frequencies(const RopeConfig& rope, int64_t head_width, int64_t tokens) {
  const int64_t width = rope.rotated(head_width);
  const at::Tensor exponents = at::arange(0, width, 2, at::kFloat) / static_cast<double>(width);
  double theta = rope.rope_theta;
  if (rope.rope_type == "dynamic") {
    const auto most = static_cast<double>(rope.max_position_embeddings);
    const double stretch = rope.scaling() * std::max(static_cast<double>(tokens), most) / most - (rope.scaling() - 1);
    theta *= std::pow(stretch, static_cast<double>(width) / static_cast<double>(width - 2));
  }
  const at::Tensor speeds = at::pow(theta, exponents).reciprocal();
  if (rope.rope_type == "linear") return speeds / rope.scaling();
  if (rope.rope_type == "llama3") return llama3_frequencies(rope, speeds);
  if (rope.rope_type == "yarn") return yarn_frequencies(rope, speeds);
  if (rope.rope_type != "longrope") return speeds;
  const bool is_long = tokens > rope.original_max_position_embeddings;
  return speeds / at::tensor(is_long ? rope.long_factor : rope.short_factor, at::kFloat);
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
