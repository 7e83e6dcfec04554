// The area under the receiver operating characteristic.
#pragma once

#include "levin/metrics/score_curve.h"

namespace levin::metrics {

/// How likely a positive sample has a higher score than a negative one. 0 for a class without positive or negative
/// samples.
class AUROC final : public ScoreCurve {
 public:
  explicit AUROC(const CurveOptions& options) : ScoreCurve("AUROC", options) {}

 private:
  [[nodiscard]] at::Tensor exact_area(const Points& points) const override;
};

}  // namespace levin::metrics
