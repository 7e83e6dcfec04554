// CosineSimilarity of the rows of predictions and targets.
#pragma once

#include <string>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

struct CosineSimilarityOptions {
  Reduction reduction = Reduction::sum;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("reduction", &CosineSimilarityOptions::reduction, "how the similarities of samples become one"));
  }
};

/// Shapes: (N, D). A row that is 0 gives nan. torchmetrics: keeps all batches until compute(); here: their
/// similarities, or their sum.
class CosineSimilarity : public TensorMetric {
 public:
  using Options = CosineSimilarityOptions;
  explicit CosineSimilarity(Defaults = {}) : CosineSimilarity(CosineSimilarityOptions()) {}
  explicit CosineSimilarity(CosineSimilarityOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "CosineSimilarity"; }

 private:
  CosineSimilarityOptions options_;
};

}  // namespace levin::metrics
