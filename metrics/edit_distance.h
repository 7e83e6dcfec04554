// EditDistance of texts: insertions, deletions and substitutions of characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

struct EditDistanceOptions {
  int64_t substitution_cost = 1;
  Reduction reduction = Reduction::mean;
  int64_t beam_width = 25;  // torchmetrics: 25, not an option; 0: the exact distance

  template <class = void>
  static auto fields() {
    using O = EditDistanceOptions;
    return levin::fields(
        field("substitution_cost", &O::substitution_cost, "cost of replacing a character by another").min(0),
        field("reduction", &O::reduction, "how the distances of texts become one"),
        field("beam_width", &O::beam_width, "characters off the diagonal that are tried; 0: all, the exact distance")
            .min(0));
  }
};

/// Characters are code points of UTF-8. With torchmetrics' beam the distance of long texts that differ much may be more
/// than the exact one.
class EditDistance : public TextMetric {
 public:
  using Options = EditDistanceOptions;
  explicit EditDistance(Defaults = {}) : EditDistance(EditDistanceOptions()) {}
  explicit EditDistance(EditDistanceOptions options);
  using TextMetric::update;
  /// Throws Error for a prediction with more than one reference.
  void update(const Texts& preds, const std::vector<Texts>& references) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "EditDistance"; }

 private:
  EditDistanceOptions options_;
};

}  // namespace levin::metrics
