// The F score: the harmonic mean of precision and recall.
#pragma once

#include "levin/metrics/stat_scores.h"

namespace levin::metrics {

/// (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp).
class FBetaScore : public StatScores {
 public:
  explicit FBetaScore(const ClassificationOptions& options) : FBetaScore("FBetaScore", options, true) {}
  [[nodiscard]] at::Tensor compute() const override;

 protected:
  FBetaScore(const std::string& name, const ClassificationOptions& options, bool takes_beta)
      : StatScores(name, options, takes_beta) {}
};

/// FBetaScore with beta = 1.
class F1Score final : public FBetaScore {
 public:
  explicit F1Score(const ClassificationOptions& options) : FBetaScore("F1Score", options, false) {}
};

}  // namespace levin::metrics
