// Continues token sequences with a causal language model.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>

namespace levin {

/// How continue_tokens draws; language models have options of these names.
struct TokenSampling {
  int64_t max_new_tokens = 0;
  double temperature = 1.0;  // below 1 more conservative, above 1 more varied; 0: the likeliest token
  int64_t top_k = 0;         // draw among the k likeliest tokens; 0: among all
  int64_t context = 0;       // how many of the last tokens next_logits is given, at most; 0: all
};

/// Returns `tokens`, (B, T) int64, followed by max_new_tokens more in each row. `next_logits` returns the logits (B, V)
/// of the token that follows the tokens it is given. Draws on the CPU from a generator of its own, so that a seed gives
/// the same tokens on every device. The rows are continued as they are: prompts of unequal length, which are padded, go
/// one by one. Throws Error for a temperature or top_k below 0.
[[nodiscard]] at::Tensor continue_tokens(at::Tensor tokens,
                                         const std::function<at::Tensor(const at::Tensor&)>& next_logits,
                                         const TokenSampling& sampling, uint64_t seed);

}  // namespace levin
