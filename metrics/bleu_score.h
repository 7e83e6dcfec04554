// BLEUScore of translations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct BLEUScoreOptions {
  int64_t n_gram = 4;                // n-grams of 1 to n_gram words
  bool smooth = false;               // add one to matches and n-grams, of two words and more
  std::vector<double> weights = {};  // of each length; empty: all alike

  template <class = void>
  static auto fields() {
    using O = BLEUScoreOptions;
    return levin::fields(field("n_gram", &O::n_gram, "longest n-gram, in words").min(1),
                         field("smooth", &O::smooth, "add one to matches and n-grams, of two words and more"),
                         field("weights", &O::weights, "weight of each length of n-gram; empty: all alike"));
  }
};

/// Of a corpus: counts of all predictions are added up. Words are separated by white space. Each prediction needs at
/// least one reference; the one of the nearest length counts for the brevity penalty.
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

}  // namespace levin::metrics
