// Precision, recall and specificity.
#pragma once

#include "levin/metrics/stat_scores.h"

namespace levin::metrics {

/// tp / (tp + fp): how many of those predicted to be of a class are.
class Precision final : public StatScores {
 public:
  explicit Precision(const ClassificationOptions& options) : StatScores("Precision", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// tp / (tp + fn): how many of a class are predicted to be of it.
class Recall final : public StatScores {
 public:
  explicit Recall(const ClassificationOptions& options) : StatScores("Recall", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// tn / (tn + fp): how many of the other classes are predicted to be of another.
class Specificity final : public StatScores {
 public:
  explicit Specificity(const ClassificationOptions& options) : StatScores("Specificity", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

}  // namespace levin::metrics
