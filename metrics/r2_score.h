// R2Score: the share of the targets' variance that predictions explain.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// How the scores of several outputs become one. variance_weighted: their mean by the variances of the targets, which
/// is the plain mean if no target varies.
enum class Multioutput { raw_values, uniform_average, variance_weighted };

struct R2ScoreOptions {
  int64_t adjusted = 0;  // independent regressors, for the adjusted score; 0: not adjusted
  Multioutput multioutput = Multioutput::uniform_average;
  int64_t num_outputs =
      1;  // torchmetrics: found out from the first batch; here: set, as states have a shape from the start

  template <class = void>
  static auto fields() {
    using O = R2ScoreOptions;
    return levin::fields(field("adjusted", &O::adjusted, "independent regressors, for the adjusted score").min(0),
                         field("multioutput", &O::multioutput, "how the scores of several outputs become one"),
                         field("num_outputs", &O::num_outputs, "columns of preds and target").min(1));
  }
};

/// Shapes: (N) or (N, 1), or (N, num_outputs). An output whose predictions are right is 1, and one whose targets do not
/// vary otherwise 0.
class R2Score : public TensorMetric {
 public:
  using Options = R2ScoreOptions;
  explicit R2Score(Defaults = {}) : R2Score(R2ScoreOptions()) {}
  explicit R2Score(R2ScoreOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  void merge(const MetricStates& other, int64_t updates) override;
  /// Throws TooFewSamplesError for less than two samples.
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "R2Score"; }

 private:
  R2ScoreOptions options_;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Multioutput> {
  static constexpr std::array names{std::pair{"raw_values", metrics::Multioutput::raw_values},
                                    std::pair{"uniform_average", metrics::Multioutput::uniform_average},
                                    std::pair{"variance_weighted", metrics::Multioutput::variance_weighted}};
};

}  // namespace levin
