// ROUGEScore of summaries: how much of a reference a prediction has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// Of several references. best: the one with the highest F-measure; avg: the mean over all.
enum class RougeAccumulate { best, avg };

/// What compute() returns.
enum class RougeValue { fmeasure, precision, recall };

/// torchmetrics: several rouge_keys and a dictionary of values; here: one of each, as a metric is logged as one number.
/// rougeLsum and the stemmer are not supported.
struct ROUGEScoreOptions {
  RougeAccumulate accumulate = RougeAccumulate::best;
  std::string rouge_key = "rougeL";  // the longest common subsequence of words; rouge1 to rouge9: n-grams
  RougeValue value = RougeValue::fmeasure;

  template <class = void>
  static auto fields() {
    using O = ROUGEScoreOptions;
    return levin::fields(
        field("accumulate", &O::accumulate, "how the scores of several references become one"),
        field("rouge_key", &O::rouge_key, "rougeL: longest common subsequence; rouge1 to rouge9: n-grams")
            .check(is_key, "rougeL or rouge1 to rouge9"),
        field("value", &O::value, "what compute() returns"));
  }
  static bool is_key(const std::string& key) {
    return key == "rougeL" || (key.size() == 6 && key.starts_with("rouge") && key[5] >= '1' && key[5] <= '9');
  }
};

/// The mean over predictions. Words are runs of a-z and 0-9, in lower case.
class ROUGEScore : public TextMetric {
 public:
  using Options = ROUGEScoreOptions;
  explicit ROUGEScore(Defaults = {}) : ROUGEScore(ROUGEScoreOptions()) {}
  explicit ROUGEScore(ROUGEScoreOptions options);
  using TextMetric::update;
  void update(const Texts& preds, const std::vector<Texts>& references) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "ROUGEScore"; }

  /// All three, whichever compute() returns.
  [[nodiscard]] at::Tensor compute(RougeValue value) const;

 private:
  ROUGEScoreOptions options_;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::RougeAccumulate> {
  static constexpr std::array names{std::pair{"best", metrics::RougeAccumulate::best},
                                    std::pair{"avg", metrics::RougeAccumulate::avg}};
};

template <>
struct EnumNames<metrics::RougeValue> {
  static constexpr std::array names{std::pair{"fmeasure", metrics::RougeValue::fmeasure},
                                    std::pair{"precision", metrics::RougeValue::precision},
                                    std::pair{"recall", metrics::RougeValue::recall}};
};

}  // namespace levin
