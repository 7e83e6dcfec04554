// What layers compute without weights of their own: activation functions, attention heads, masks and rotary positions.
//
// Shapes: B batch, T tokens, H heads, K key/value heads, D width of a head.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace levin::huggingface {

[[nodiscard]] bool is_activation(const std::string& name);
[[nodiscard]] std::vector<std::string> activation_names();

using Activation = at::Tensor (*)(const at::Tensor&);
/// The function of a name that is_activation; throws Error for another.
[[nodiscard]] Activation activation(const std::string& name);

// What attention needs besides its linear layers: heads, masks and rotary positions.
//
// Shapes: B batch, T tokens, H heads, K heads of keys and values, D width of a head.

/// (B, T, H * D) to (B, H, T, D), a view.
[[nodiscard]] at::Tensor split_heads(const at::Tensor& x, int64_t heads);

struct AttentionSettings {
  double dropout = 0;
  bool is_causal = false;                      // without a mask only: a mask says itself what is seen
  std::optional<double> scale = std::nullopt;  // unset: 1 / sqrt(D)
};

/// query: (B, H, T, D); key and value: (B, K, T, D), H a multiple of K; mask: bool, true where a query (row) sees a
/// key, of a shape that expands to (B, H, T, T), or undefined. Returns (B, T, H * D).
[[nodiscard]] at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const at::Tensor& mask, const AttentionSettings& settings);

/// attention_mask: (B, T), 0 for padding, or undefined; (B, 1, 1, T) bool, or undefined.
[[nodiscard]] at::Tensor padding_mask(const at::Tensor& attention_mask);

/// What a causal model sees: no later token, no padding, and with `window` the last `window` tokens alone; (B or 1, 1,
/// T, T) bool. Undefined if that is only "no later token", which attend() does without a mask.
[[nodiscard]] at::Tensor causal_mask(const at::Tensor& ids, const at::Tensor& attention_mask,
                                     std::optional<int64_t> window = std::nullopt);

/// Cosines and sines of the positions 0 … tokens - 1, (T, R), times `scale`, in x's type and on its device.
[[nodiscard]] std::pair<at::Tensor, at::Tensor> rope_table(const at::Tensor& frequencies, double scale, int64_t tokens,
                                                           const at::Tensor& x);

/// Rotates the pairs (i, i + R / 2) of a head and leaves the numbers after the first R unchanged; x: (B, H, T, D).
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines);

}  // namespace levin::huggingface
