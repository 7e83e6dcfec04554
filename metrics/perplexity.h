// Perplexity of a language model: exp of the mean negative log-probability of the tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct PerplexityOptions {
  std::optional<int64_t> ignore_index = std::nullopt;  // targets that are left out, such as padding

  template <class = void>
  static auto fields() {
    return levin::fields(field("ignore_index", &PerplexityOptions::ignore_index, "targets that are left out"));
  }
};

/// preds: logits (N, T, V), normalized or not; target: int64 (N, T). torchmetrics: softmax, whose small probabilities
/// become 0 and the value infinite; here: log-probabilities.
class Perplexity : public TensorMetric {
 public:
  using Options = PerplexityOptions;
  explicit Perplexity(Defaults = {}) : Perplexity(PerplexityOptions()) {}
  explicit Perplexity(PerplexityOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "Perplexity"; }

 private:
  void add_rows(const at::Tensor& logits, const at::Tensor& target);
  PerplexityOptions options_;
};

}  // namespace levin::metrics
