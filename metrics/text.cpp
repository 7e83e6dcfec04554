#include "levin/metrics/text.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "levin/core/options/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/score_loops.h"
#include "levin/metrics/text_tokens.h"

namespace levin::metrics {

namespace {

// Throws Error naming `metric` if the numbers differ or a prediction has no reference. `only_one`: or more than one.
void check_references(const std::string& metric, size_t preds, const std::vector<std::vector<std::string>>& references,
                      bool only_one = false) {
  if (preds != references.size()) {
    throw Error(metric + ": " + count_of(static_cast<int64_t>(preds), "prediction") + " for references of " +
                count_of(static_cast<int64_t>(references.size()), "prediction") +
                ". Give a list of references for each.");
  }
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].empty()) {
      throw Error(metric + ": prediction " + std::to_string(i) + " has no reference. Give it at least one.");
    }
    if (only_one && references[i].size() > 1) {
      throw Error(metric + ": prediction " + std::to_string(i) + " has " + std::to_string(references[i].size()) +
                  " references. Give it one.");
    }
  }
}

// The states of BLEUScore and of ROUGEScore.
enum : size_t { preds_len, target_len, numerator, denominator };
enum : size_t { rouge_sums, rouge_total };

// Words, then n-grams, as numbers that are equal for equal words in a prediction and its references.
using Numbers = std::vector<uint32_t>;

template <class Word>
Numbers numbers_of(std::vector<Word> words, std::unordered_map<Word, uint32_t>& known) {
  Numbers numbers;
  for (Word& word : words) {
    numbers.push_back(known.emplace(std::move(word), static_cast<uint32_t>(known.size())).first->second);
  }
  return numbers;
}

// Makes n-grams one word longer: the numbers of an n-gram and of the word after it give a new number.
void lengthen(Numbers& grams, const Numbers& words, std::unordered_map<uint64_t, uint32_t>& known) {
  if (grams.empty()) return;
  const size_t last_word = words.size() - grams.size() + 1;  // that follows the first n-gram
  grams.pop_back();
  for (size_t i = 0; i < grams.size(); ++i) {
    const uint64_t key = (uint64_t{grams[i]} << 32U) | words[last_word + i];
    grams[i] = known.emplace(key, static_cast<uint32_t>(known.size())).first->second;
  }
}

// Counts the n-grams of the prediction that are in a reference, each at most as often as in the reference with most.
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

size_t longest_common_subsequence(const Numbers& a, const Numbers& b) {
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

std::vector<Numbers> sorted_grams(const Numbers& words, size_t n) {
  std::vector<Numbers> grams;
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

RougeScores compare(const Numbers& pred, const Numbers& target, const std::string& key) {
  if (key == "rougeL") return scores_of(longest_common_subsequence(pred, target), pred.size(), target.size());
  const auto n = static_cast<size_t>(key.back() - '0');
  const auto a = sorted_grams(pred, n);
  const auto b = sorted_grams(target, n);
  std::vector<Numbers> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return scores_of(both.size(), a.size(), b.size());
}

constexpr int64_t kUnreached = int64_t{1} << 60;

// The columns of the reference that a row tries: near the diagonal, and in the last row up to the end.
struct Columns {
  int64_t begin = 0;
  int64_t end = 0;
};

class Beam {
 public:
  Beam(int64_t rows, int64_t columns, int64_t width) : rows_(rows), columns_(columns) {
    ratio_ = rows > 0 ? static_cast<double>(columns) / static_cast<double>(rows) : 1.0;
    const double half = ratio_ / 2;
    width_ =
        half > static_cast<double>(width) ? static_cast<int64_t>(std::ceil(half + static_cast<double>(width))) : width;
    if (width == 0) width_ = rows + columns + 1;
  }
  [[nodiscard]] Columns of_row(int64_t i) const {
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio_));
    const int64_t end = i == rows_ ? columns_ + 1 : std::min(columns_ + 1, diagonal + width_);
    return {std::max<int64_t>(0, diagonal - width_), end};
  }

 private:
  int64_t rows_, columns_, width_;
  double ratio_;
};

int64_t edit_distance(const std::u32string& pred, const std::u32string& target, const EditDistanceOptions& options) {
  const auto rows = static_cast<int64_t>(pred.size());
  const auto columns = static_cast<int64_t>(target.size());
  const Beam beam(rows, columns, options.beam_width);
  std::vector<int64_t> above(target.size() + 1), row(target.size() + 1);
  for (int64_t j = 0; j <= columns; ++j) above[static_cast<size_t>(j)] = j;
  for (int64_t i = 1; i <= rows; ++i) {
    std::fill(row.begin(), row.end(), kUnreached);
    const Columns tried = beam.of_row(i);
    const char32_t letter = pred[static_cast<size_t>(i - 1)];
    if (tried.begin == 0) row[0] = above[0] + 1;
    for (auto j = static_cast<size_t>(std::max<int64_t>(1, tried.begin)); j < static_cast<size_t>(tried.end); ++j) {
      const int64_t replaced = above[j - 1] + (letter == target[j - 1] ? 0 : options.substitution_cost);
      row[j] = std::min(replaced, std::min(above[j], row[j - 1]) + 1);
    }
    std::swap(above, row);
  }
  return above.back();
}

void check_shapes(const at::Tensor& preds, const at::Tensor& target) {
  const bool fits = preds.dim() == 3 && target.dim() == 2 && preds.sizes().slice(0, 2) == target.sizes();
  if (!fits) {
    throw Error("Perplexity: preds has the shape " + shape_of(preds) + " and target " + shape_of(target) +
                ". Give logits (N, T, V) and tokens (N, T).");
  }
  if (!preds.is_floating_point() || target.scalar_type() != at::kLong) {
    throw Error("Perplexity: preds has the type " + std::string(c10::toString(preds.scalar_type())) + " and target " +
                c10::toString(target.scalar_type()) + ". Give logits of a floating-point type and tokens of int64.");
  }
  check_same_device("Perplexity", preds, target);
}

// The sum of negative log-probabilities of the tokens at `rows`.
template <class T>
double negative_log_probability(const T* logits, const int64_t* tokens, const std::vector<int64_t>& rows,
                                int64_t vocabulary, int64_t all) {
  std::vector<double> log_sums(static_cast<size_t>(all));
  for (size_t begin = 0; begin < rows.size();) {  // runs of neighbours together
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const int64_t first = rows[begin];
    row_log_sum_exp(logits + first * vocabulary, static_cast<int64_t>(end - begin), vocabulary,
                    log_sums.data() + first);
    begin = end;
  }
  double sum = 0;
  for (const int64_t row : rows) {
    sum += log_sums[static_cast<size_t>(row)] - static_cast<double>(logits[row * vocabulary + tokens[row]]);
  }
  return sum;
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
    const Numbers pred_words = numbers_of(split_at_spaces(preds[i]), known_words);
    std::vector<Numbers> target_words;
    for (const std::string& text : references[i])
      target_words.push_back(numbers_of(split_at_spaces(text), known_words));
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
    const Numbers pred = numbers_of(alphanumeric_words(preds[i]), known);
    RougeScores best;
    RougeScores sum;
    for (size_t r = 0; r < references[i].size(); ++r) {
      const RougeScores one =
          compare(pred, numbers_of(alphanumeric_words(references[i][r]), known), options_.rouge_key);
      if (r == 0 || one.fmeasure > best.fmeasure) best = one;
      sum.fmeasure += one.fmeasure;
      sum.precision += one.precision;
      sum.recall += one.recall;
    }
    const bool averages = options_.accumulate == RougeAccumulate::avg;
    const RougeScores& chosen = averages ? sum : best;
    const double weight = averages ? 1.0 / static_cast<double>(references[i].size()) : 1.0;
    sums[0] += chosen.fmeasure * weight;
    sums[1] += chosen.precision * weight;
    sums[2] += chosen.recall * weight;
  }
  *state(rouge_total).mutable_data_ptr<int64_t>() += static_cast<int64_t>(preds.size());
}

at::Tensor ROUGEScore::compute() const {
  return compute(options_.value);
}

at::Tensor ROUGEScore::compute(RougeValue value) const {
  return at::div(state(rouge_sums).select(0, static_cast<int64_t>(value)), state(rouge_total));
}

EditDistance::EditDistance(EditDistanceOptions options) : options_(checked(options, "EditDistanceOptions")) {
  if (options_.reduction == Reduction::none) {
    add_state("edit_scores_list", StateReduce::cat);
    return;
  }
  add_state("edit_scores", StateReduce::sum, at::zeros({}, at::kLong));
  add_state("num_elements", StateReduce::sum, at::zeros({}, at::kLong));
}

void EditDistance::update(const Texts& preds, const std::vector<Texts>& references) {
  check_references(name(), preds.size(), references, /*only_one=*/true);
  begin_update(at::kCPU);
  const auto count = static_cast<int64_t>(preds.size());
  const at::Tensor distances = at::empty({count}, at::kLong);
  int64_t sum = 0;
  for (size_t i = 0; i < preds.size(); ++i) {
    const int64_t distance = edit_distance(code_points(preds[i]), code_points(references[i][0]), options_);
    distances.mutable_data_ptr<int64_t>()[i] = distance;
    sum += distance;
  }
  if (options_.reduction == Reduction::none) {
    append(0, distances);
  } else {
    *state(0).mutable_data_ptr<int64_t>() += sum;
    *state(1).mutable_data_ptr<int64_t>() += count;
  }
}

at::Tensor EditDistance::compute() const {
  if (options_.reduction == Reduction::none) return rows(0);
  return options_.reduction == Reduction::sum ? state(0).clone() : at::div(state(0).to(at::kDouble), state(1));
}

Perplexity::Perplexity(PerplexityOptions options) : options_(checked(options, "PerplexityOptions")) {
  add_state("total_log_probs", StateReduce::sum, at::zeros({}, at::kDouble));
  add_state("count", StateReduce::sum, at::zeros({}, at::kLong));
}

void Perplexity::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  check_shapes(preds, target);
  const bool is_half = preds.scalar_type() != at::kDouble && preds.scalar_type() != at::kFloat;
  const at::Tensor logits = is_half ? preds.to(at::kFloat) : preds;
  if (logits.is_cpu()) {
    const at::Tensor here = logits.contiguous();
    const at::Tensor tokens = target.contiguous();
    add_rows(here, tokens);
    return;
  }
  begin_update(logits.device());
  const at::Tensor log_probabilities = at::log_softmax(logits, -1);
  const at::Tensor counted =
      options_.ignore_index ? target.ne(*options_.ignore_index) : at::ones_like(target, at::kBool);
  const at::Tensor tokens = at::where(counted, target, 0).unsqueeze(-1);
  const at::Tensor chosen = at::gather(log_probabilities, -1, tokens).squeeze(-1);
  state(0).sub_(at::where(counted, chosen, 0).sum(at::kDouble));
  state(1).add_(counted.sum());
}

// Counts on the CPU, after all tokens were checked.
void Perplexity::add_rows(const at::Tensor& logits, const at::Tensor& target) {
  const int64_t vocabulary = logits.size(2);
  const int64_t* tokens = target.const_data_ptr<int64_t>();
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(target.numel()));
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (options_.ignore_index && tokens[i] == *options_.ignore_index) continue;
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      throw Error("Perplexity: target has the token " + std::to_string(tokens[i]) + " at index " + std::to_string(i) +
                  " (flattened), and preds have logits for 0 to " + std::to_string(vocabulary - 1) +
                  ". If it marks what to leave out, set .ignore_index to it.");
    }
    rows.push_back(i);
  }
  begin_update(logits.device());
  double& sum = *state(0).mutable_data_ptr<double>();
  sum += logits.scalar_type() == at::kFloat
             ? negative_log_probability(logits.const_data_ptr<float>(), tokens, rows, vocabulary, target.numel())
             : negative_log_probability(logits.const_data_ptr<double>(), tokens, rows, vocabulary, target.numel());
  *state(1).mutable_data_ptr<int64_t>() += static_cast<int64_t>(rows.size());
}

at::Tensor Perplexity::compute() const {
  return at::exp(at::div(state(0), state(1)));
}

}  // namespace levin::metrics
