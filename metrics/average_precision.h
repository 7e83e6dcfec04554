// The area under the curve of precision over recall, as a sum of steps.
#pragma once

#include "levin/metrics/score_curve.h"

namespace levin::metrics {

/// The sum over falling thresholds of the precision times the gain in recall. Without thresholds a class that has no
/// samples is NaN, and the averages leave it out.
class AveragePrecision final : public ScoreCurve {
 public:
  explicit AveragePrecision(const CurveOptions& options) : ScoreCurve("AveragePrecision", options) {}

 private:
  [[nodiscard]] at::Tensor exact_area(const Points& points) const override;
  [[nodiscard]] at::Tensor binned_area(const Points& points) const override;
};

}  // namespace levin::metrics
