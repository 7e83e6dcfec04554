// PearsonCorrCoef: the linear correlation of predictions and targets.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct PearsonCorrCoefOptions {
  int64_t num_outputs = 1;  // more than one: preds and target are (N, num_outputs), and the value is one for each

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("num_outputs", &PearsonCorrCoefOptions::num_outputs, "columns that each have their own value").min(1));
  }
};

/// Shapes: (N) or (N, 1), or (N, num_outputs). nan where predictions or targets do not vary. States are means and
/// centered sums, so that large means lose no digits; those of two ranks combine by Chan's formula.
class PearsonCorrCoef : public TensorMetric {
 public:
  using Options = PearsonCorrCoefOptions;
  explicit PearsonCorrCoef(Defaults = {}) : PearsonCorrCoef(PearsonCorrCoefOptions()) {}
  explicit PearsonCorrCoef(PearsonCorrCoefOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  void merge(const MetricStates& other, int64_t updates) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "PearsonCorrCoef"; }

 private:
  PearsonCorrCoefOptions options_;
};

}  // namespace levin::metrics
