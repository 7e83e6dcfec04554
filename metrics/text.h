// Metrics of text: BLEU, ROUGE, edit distance, and the perplexity of a language model. Names, options and values
// follow torchmetrics.text.
//
//   levin::metrics::BLEUScore bleu_;                                       // in the module
//   bleu_({"the cat is on the mat"}, {"there is a cat on the mat"});       // in validation_step
//
// Predictions and references are UTF-8 strings; update() throws Error naming the metric if their numbers differ or a
// prediction has no reference. Constructors throw ConfigError naming the option. Every rank updates its own object
// (metric.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

/// Options of BLEUScore.
struct BLEUScoreOptions {
  int64_t n_gram = 4;                // n-grams of 1 to n_gram words
  bool smooth = false;               // add one to matches and n-grams of two words or more
  std::vector<double> weights = {};  // weight of each length; empty: equal weights

  template <class = void>
  static auto fields() {
    using O = BLEUScoreOptions;
    return levin::fields(field("n_gram", &O::n_gram, "longest n-gram, in words").min(1),
                         field("smooth", &O::smooth, "add one to matches and n-grams of two words or more"),
                         field("weights", &O::weights, "weight of each length of n-gram; empty: equal weights"));
  }
};

/// The BLEU score of a corpus (Papineni et al. 2002): the counts of all predictions are added up. Words are separated
/// by white space. The reference of the nearest length counts for the brevity penalty. Value: a scalar from 0 to 1.
class BLEUScore : public TextMetric {
 public:
  using Options = BLEUScoreOptions;
  explicit BLEUScore(Defaults = {}) : BLEUScore(BLEUScoreOptions()) {}
  explicit BLEUScore(BLEUScoreOptions options);
  using TextMetric::update;
  void update(const Texts& preds, const std::vector<Texts>& references) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "BLEUScore"; }

 private:
  BLEUScoreOptions options_;
};

/// How several references are used. best: the one with the highest F-measure; avg: the mean over all.
enum class RougeAccumulate { best, avg };

/// What compute() returns.
enum class RougeValue { fmeasure, precision, recall };

/// torchmetrics has several rouge_keys and a dictionary of values; here there is one of each, because a metric is
/// logged as one number. rougeLsum and the stemmer are not supported.
struct ROUGEScoreOptions {
  EnumOption<RougeAccumulate> accumulate = RougeAccumulate::best;
  std::string rouge_key = "rougeL";  // the longest common subsequence of words; rouge1 to rouge9: n-grams
  EnumOption<RougeValue> value = RougeValue::fmeasure;

  template <class = void>
  static auto fields() {
    using O = ROUGEScoreOptions;
    return levin::fields(
        field("accumulate", &O::accumulate, "how the scores of several references are reduced"),
        field("rouge_key", &O::rouge_key, "rougeL: longest common subsequence; rouge1 to rouge9: n-grams")
            .check(is_key, "rougeL or rouge1 to rouge9"),
        field("value", &O::value, "what compute() returns"));
  }
  static bool is_key(const std::string& key) {
    return key == "rougeL" || (key.size() == 6 && key.starts_with("rouge") && key[5] >= '1' && key[5] <= '9');
  }
};

/// The ROUGE score of summaries (Lin 2004): how much of a reference a prediction contains, averaged over predictions.
/// Words are runs of a-z and 0-9, in lower case. Value: a scalar from 0 to 1.
class ROUGEScore : public TextMetric {
 public:
  using Options = ROUGEScoreOptions;
  explicit ROUGEScore(Defaults = {}) : ROUGEScore(ROUGEScoreOptions()) {}
  explicit ROUGEScore(ROUGEScoreOptions options);
  using TextMetric::update;
  void update(const Texts& preds, const std::vector<Texts>& references) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "ROUGEScore"; }

  /// Returns F-measure, precision or recall, regardless of options.value.
  [[nodiscard]] at::Tensor compute(RougeValue value) const;

 private:
  ROUGEScoreOptions options_;
};

/// Options of EditDistance.
struct EditDistanceOptions {
  int64_t substitution_cost = 1;
  EnumOption<Reduction> reduction = Reduction::mean;
  int64_t beam_width = 25;  // torchmetrics: 25, not an option; 0: the exact distance

  template <class = void>
  static auto fields() {
    using O = EditDistanceOptions;
    return levin::fields(
        field("substitution_cost", &O::substitution_cost, "cost of replacing one character by another").min(0),
        field("reduction", &O::reduction, "how the distances of predictions are reduced"),
        field("beam_width", &O::beam_width, "characters off the diagonal that are tried; 0: all, the exact distance")
            .min(0));
  }
};

/// The Levenshtein distance: insertions, deletions and substitutions of characters (code points). With the beam, as in
/// torchmetrics, the distance of long strings that differ much may exceed the exact one. Value: a scalar, or one per
/// prediction with the reduction none.
class EditDistance : public TextMetric {
 public:
  using Options = EditDistanceOptions;
  explicit EditDistance(Defaults = {}) : EditDistance(EditDistanceOptions()) {}
  explicit EditDistance(EditDistanceOptions options);
  using TextMetric::update;
  /// Throws Error for a prediction with more than one reference.
  void update(const Texts& preds, const std::vector<Texts>& references) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "EditDistance"; }

 private:
  EditDistanceOptions options_;
};

/// Options of Perplexity.
struct PerplexityOptions {
  std::optional<int64_t> ignore_index = std::nullopt;  // targets that are left out, such as padding

  template <class = void>
  static auto fields() {
    return levin::fields(field("ignore_index", &PerplexityOptions::ignore_index, "targets that are left out"));
  }
};

/// exp of the mean negative log-probability of the tokens. Shapes: preds: logits (N, T, V), normalized or not; target:
/// int64 (N, T). update() throws Error for other shapes or types, and on the CPU for a token out of range. torchmetrics
/// uses softmax, whose small probabilities become 0 and the value infinite; here log-probabilities are used.
class Perplexity : public TensorMetric {
 public:
  using Options = PerplexityOptions;
  explicit Perplexity(Defaults = {}) : Perplexity(PerplexityOptions()) {}
  explicit Perplexity(PerplexityOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "Perplexity"; }

 private:
  void add_rows(const at::Tensor& logits, const at::Tensor& target);
  PerplexityOptions options_;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::RougeAccumulate> {
  static constexpr EnumName<metrics::RougeAccumulate> names[] = {{"best", metrics::RougeAccumulate::best},
                                                                 {"avg", metrics::RougeAccumulate::avg}};
};

template <>
struct EnumNames<metrics::RougeValue> {
  static constexpr EnumName<metrics::RougeValue> names[] = {{"fmeasure", metrics::RougeValue::fmeasure},
                                                            {"precision", metrics::RougeValue::precision},
                                                            {"recall", metrics::RougeValue::recall}};
};

}  // namespace levin
