#include "levin/models/token_sampling.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>
#include <string>

#include "levin/core/options/error.h"

namespace levin {

namespace {

// logits: (B, V) float32 on the CPU; returns (B, 1).
at::Tensor draw(at::Tensor logits, const TokenSampling& sampling, const at::Generator& generator) {
  if (sampling.temperature == 0) return logits.argmax(-1, /*keepdim=*/true);
  logits = logits / sampling.temperature;
  if (sampling.top_k > 0 && sampling.top_k < logits.size(-1)) {
    const at::Tensor lowest = std::get<0>(logits.topk(sampling.top_k)).narrow(-1, sampling.top_k - 1, 1);  // (B, 1)
    logits = logits.masked_fill(logits < lowest, -std::numeric_limits<float>::infinity());
  }
  return at::multinomial(logits.softmax(-1), 1, /*replacement=*/false, generator);
}

}  // namespace

at::Tensor continue_tokens(at::Tensor tokens, const std::function<at::Tensor(const at::Tensor&)>& next_logits,
                           const TokenSampling& sampling, uint64_t seed) {
  if (!(sampling.temperature >= 0) || sampling.top_k < 0) {
    throw Error("continue_tokens: temperature and top_k must be 0 or more, got " +
                std::to_string(sampling.temperature) + " and " + std::to_string(sampling.top_k) + ".");
  }
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (int64_t i = 0; i < sampling.max_new_tokens; ++i) {
    const int64_t length = tokens.size(1);
    const int64_t seen = sampling.context > 0 ? std::min(length, sampling.context) : length;
    const at::Tensor logits = next_logits(tokens.narrow(1, length - seen, seen));
    tokens = at::cat({tokens, draw(logits.to(at::kFloat).cpu(), sampling, generator).to(tokens.device())}, 1);
  }
  return tokens;
}

}  // namespace levin
