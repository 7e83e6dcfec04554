#include "levin/models/huggingface/check_sizes.h"

#include <algorithm>
#include <cstdint>

#include "levin/checkpoint/weights_source.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin::huggingface {

namespace {

constexpr int64_t kMostLayers = 10'000;
// A model of these costs little; what is wrong with its weights is said tensor by tensor when they are read.
constexpr int64_t kFewLayers = 100, kSmallSize = 4096;
constexpr const char* kLayers[] = {"num_hidden_layers", "n_layer", "n_layers"};
// Sizes that are dimensions of weights in each family that has the key, or divide one.
constexpr const char* kDimensions[] = {"vocab_size",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_attention_heads",
                                       "num_key_value_heads",
                                       "head_dim",
                                       "n_embd",
                                       "n_inner",
                                       "n_head",
                                       "n_positions",
                                       "dim",
                                       "hidden_dim",
                                       "n_heads"};

int64_t number_in(const PretrainedConfig& config, const char* key) {
  int64_t number = 0;
  const ConfigNode* node = config.find(key);
  return node != nullptr && detail::parse_int(*node, number) ? number : 0;
}

}  // namespace

void check_layers(const PretrainedConfig& config) {
  Problems problems;
  for (const char* key : kLayers) {
    const int64_t layers = number_in(config, key);
    if (layers <= kMostLayers) continue;
    problems.add({config.source(), 0, 0}, key,
                 "must be at most " + std::to_string(kMostLayers) + ", got " + std::to_string(layers) + ".");
  }
  problems.throw_if_any();
}

void check_sizes(const PretrainedConfig& config, const WeightsSource& source, const std::string& folder,
                 bool ignore_mismatched_sizes) {
  const auto tensors = static_cast<int64_t>(source.tensors().size());
  int64_t largest = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.bytes == 0) continue;  // the header may claim anything of it
    for (const int64_t size : tensor.shape) largest = std::max(largest, size);
  }
  Problems problems;
  const auto add = [&](const char* key, int64_t number, const std::string& found) {
    problems.add({config.source(), 0, 0}, key,
                 "is " + std::to_string(number) + ", and " + found + " in the weights of " + folder +
                     ". Give the config.json that was saved with them.");
  };
  for (const char* key : kLayers) {
    const int64_t layers = number_in(config, key);
    if (layers > std::max(tensors, kFewLayers)) add(key, layers, "there are only " + count_of(tensors, "tensor"));
  }
  for (const char* key : kDimensions) {
    const int64_t size = ignore_mismatched_sizes ? 0 : number_in(config, key);
    if (size > std::max(largest, kSmallSize)) add(key, size, "the largest dimension is " + std::to_string(largest));
  }
  problems.throw_if_any();
}

}  // namespace levin::huggingface
