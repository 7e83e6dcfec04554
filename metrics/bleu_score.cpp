#include "levin/metrics/bleu_score.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "levin/core/error.h"
#include "levin/metrics/text_batch.h"
#include "levin/metrics/text_tokens.h"

namespace levin::metrics {

namespace {

enum : size_t { preds_len, target_len, numerator, denominator };

// Words, then n-grams, as numbers: the same for the same words in a prediction and its references.
using Numbers = std::vector<uint32_t>;

Numbers numbers_of(const std::string& text, std::unordered_map<std::string_view, uint32_t>& known) {
  Numbers numbers;
  for (const auto word : split_at_spaces(text)) {
    numbers.push_back(known.emplace(word, static_cast<uint32_t>(known.size())).first->second);
  }
  return numbers;
}

// n-grams with a word more: the number of the n-gram and that of the word that follows make a new one.
void lengthen(Numbers& grams, const Numbers& words, std::unordered_map<uint64_t, uint32_t>& known) {
  if (grams.empty()) return;
  const size_t last_word = words.size() - grams.size() + 1;  // that follows the first n-gram
  grams.pop_back();
  for (size_t i = 0; i < grams.size(); ++i) {
    const uint64_t key = (uint64_t{grams[i]} << 32U) | words[last_word + i];
    grams[i] = known.emplace(key, static_cast<uint32_t>(known.size())).first->second;
  }
}

// How many n-grams of the prediction are in a reference, each at most as often as in the reference that has most.
int64_t matches(const Numbers& pred, const std::vector<Numbers>& references, size_t known) {
  std::vector<int32_t> most(known), count(known);
  for (const Numbers& reference : references) {
    for (const uint32_t gram : reference) most[gram] = std::max(most[gram], ++count[gram]);
    for (const uint32_t gram : reference) count[gram] = 0;
  }
  int64_t sum = 0;
  for (const uint32_t gram : pred) {
    if (count[gram] < most[gram]) ++sum;
    ++count[gram];
  }
  return sum;
}

int64_t nearest_length(size_t length, const std::vector<Numbers>& references) {
  const auto distance = [&](const Numbers& reference) {
    return std::abs(static_cast<int64_t>(reference.size()) - static_cast<int64_t>(length));
  };
  return static_cast<int64_t>(std::min_element(references.begin(), references.end(), [&](const auto& a, const auto& b) {
                                return distance(a) < distance(b);
                              })->size());
}

}  // namespace

BLEUScore::BLEUScore(BLEUScoreOptions options) : options_(checked(std::move(options), "BLEUScoreOptions")) {
  if (!options_.weights.empty() && static_cast<int64_t>(options_.weights.size()) != options_.n_gram) {
    throw ConfigError("BLEUScoreOptions.weights: must have n_gram = " + std::to_string(options_.n_gram) +
                      " values, got " + std::to_string(options_.weights.size()) + ".");
  }
  add_state("preds_len", StateReduce::sum, at::zeros({}, at::kLong));
  add_state("target_len", StateReduce::sum, at::zeros({}, at::kLong));
  add_state("numerator", StateReduce::sum, at::zeros({options_.n_gram}, at::kLong));
  add_state("denominator", StateReduce::sum, at::zeros({options_.n_gram}, at::kLong));
}

void BLEUScore::update(const Texts& preds, const std::vector<Texts>& references) {
  check_references(name(), preds.size(), references);
  begin_update(at::kCPU);
  int64_t* matched = state(numerator).mutable_data_ptr<int64_t>();
  int64_t* all = state(denominator).mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < preds.size(); ++i) {
    std::unordered_map<std::string_view, uint32_t> known_words;
    const Numbers pred_words = numbers_of(preds[i], known_words);
    std::vector<Numbers> target_words;
    for (const std::string& text : references[i]) target_words.push_back(numbers_of(text, known_words));
    *state(preds_len).mutable_data_ptr<int64_t>() += static_cast<int64_t>(pred_words.size());
    *state(target_len).mutable_data_ptr<int64_t>() += nearest_length(pred_words.size(), target_words);
    Numbers pred = pred_words;
    std::vector<Numbers> targets = target_words;
    size_t known = known_words.size();
    for (int64_t n = 0; n < options_.n_gram && !pred.empty(); ++n) {
      matched[n] += matches(pred, targets, known);
      all[n] += static_cast<int64_t>(pred.size());
      std::unordered_map<uint64_t, uint32_t> known_grams;
      lengthen(pred, pred_words, known_grams);
      for (size_t r = 0; r < targets.size(); ++r) lengthen(targets[r], target_words[r], known_grams);
      known = known_grams.size();
    }
  }
}

at::Tensor BLEUScore::compute() const {
  at::Tensor value = at::zeros({}, at::kDouble);
  const at::Tensor matched = state(numerator).cpu();
  const at::Tensor all = state(denominator).cpu();
  double log_mean = 0;
  for (int64_t n = 0; n < options_.n_gram; ++n) {
    const double extra = options_.smooth && n > 0 ? 1 : 0;
    const auto hits = static_cast<double>(matched.const_data_ptr<int64_t>()[n]);
    const auto grams = static_cast<double>(all.const_data_ptr<int64_t>()[n]);
    if (hits == 0) return value;
    const double weight = options_.weights.empty() ? 1.0 / static_cast<double>(options_.n_gram)
                                                   : options_.weights[static_cast<size_t>(n)];
    log_mean += weight * std::log((hits + extra) / (grams + extra));
  }
  const auto length = static_cast<double>(state(preds_len).item<int64_t>());
  const auto wanted = static_cast<double>(state(target_len).item<int64_t>());
  return value.fill_(std::exp(log_mean + (length > wanted ? 0 : 1 - wanted / length)));
}

}  // namespace levin::metrics
