// The share of right predictions.
#pragma once

#include "levin/metrics/stat_scores.h"

namespace levin::metrics {

/// multiclass: right predictions of each class's samples; macro is the balanced accuracy. binary, multilabel: right
/// labels of all labels.
class Accuracy final : public StatScores {
 public:
  explicit Accuracy(const ClassificationOptions& options) : StatScores("Accuracy", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

}  // namespace levin::metrics
