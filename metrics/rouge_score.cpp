#include "levin/metrics/rouge_score.h"

#include <ATen/ops/div.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <unordered_map>

#include "levin/metrics/text_batch.h"
#include "levin/metrics/text_tokens.h"

namespace levin::metrics {

namespace {

enum : size_t { rouge_sums, rouge_total };

// Words as numbers, the same for the same word in a prediction and its references.
using WordNumbers = std::vector<uint32_t>;

WordNumbers words_of(const std::string& text, std::unordered_map<std::string, uint32_t>& known) {
  WordNumbers numbers;
  for (auto& word : alphanumeric_words(text)) {
    numbers.push_back(known.emplace(std::move(word), static_cast<uint32_t>(known.size())).first->second);
  }
  return numbers;
}

size_t longest_common_subsequence(const WordNumbers& a, const WordNumbers& b) {
  std::vector<size_t> row(b.size() + 1);
  for (const uint32_t word : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

std::vector<WordNumbers> sorted_grams(const WordNumbers& words, size_t n) {
  std::vector<WordNumbers> grams;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    const auto from = words.begin() + static_cast<std::ptrdiff_t>(i);
    grams.emplace_back(from, from + static_cast<std::ptrdiff_t>(n));
  }
  std::sort(grams.begin(), grams.end());
  return grams;
}

struct RougeScores {
  double fmeasure = 0, precision = 0, recall = 0;
};

RougeScores scores_of(size_t hits, size_t pred, size_t target) {
  if (hits == 0 || pred == 0 || target == 0) return {};
  const double precision = static_cast<double>(hits) / static_cast<double>(pred);
  const double recall = static_cast<double>(hits) / static_cast<double>(target);
  return {2 * precision * recall / (precision + recall), precision, recall};
}

RougeScores compare(const WordNumbers& pred, const WordNumbers& target, const std::string& key) {
  if (key == "rougeL") return scores_of(longest_common_subsequence(pred, target), pred.size(), target.size());
  const auto n = static_cast<size_t>(key.back() - '0');
  const auto a = sorted_grams(pred, n);
  const auto b = sorted_grams(target, n);
  std::vector<WordNumbers> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return scores_of(both.size(), a.size(), b.size());
}

}  // namespace

ROUGEScore::ROUGEScore(ROUGEScoreOptions options) : options_(checked(std::move(options), "ROUGEScoreOptions")) {
  add_state("scores", StateReduce::sum, at::zeros({3}, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void ROUGEScore::update(const Texts& preds, const std::vector<Texts>& references) {
  check_references(name(), preds.size(), references);
  begin_update(at::kCPU);
  double* sums = state(rouge_sums).mutable_data_ptr<double>();
  for (size_t i = 0; i < preds.size(); ++i) {
    std::unordered_map<std::string, uint32_t> known;
    const WordNumbers pred = words_of(preds[i], known);
    RougeScores best;
    RougeScores sum;
    for (size_t r = 0; r < references[i].size(); ++r) {
      const RougeScores one = compare(pred, words_of(references[i][r], known), options_.rouge_key);
      if (r == 0 || one.fmeasure > best.fmeasure) best = one;
      sum.fmeasure += one.fmeasure;
      sum.precision += one.precision;
      sum.recall += one.recall;
    }
    const bool averages = options_.accumulate == RougeAccumulate::avg;
    const RougeScores& chosen = averages ? sum : best;
    const double share = averages ? 1.0 / static_cast<double>(references[i].size()) : 1.0;
    sums[0] += chosen.fmeasure * share;
    sums[1] += chosen.precision * share;
    sums[2] += chosen.recall * share;
  }
  *state(rouge_total).mutable_data_ptr<int64_t>() += static_cast<int64_t>(preds.size());
}

at::Tensor ROUGEScore::compute() const {
  return compute(options_.value);
}

at::Tensor ROUGEScore::compute(RougeValue value) const {
  return at::div(state(rouge_sums).select(0, static_cast<int64_t>(value)), state(rouge_total));
}

}  // namespace levin::metrics
