#include "levin/metrics/classification_metric.h"

#include <ATen/ops/zeros.h>

#include <limits>

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin::metrics {

ClassificationMetric::ClassificationMetric(LabelSpec spec)
    : spec_(std::move(spec)), out_of_range_(add_state("out_of_range", StateReduce::sum, at::zeros({}, at::kLong))) {}

void ClassificationMetric::add_out_of_range(const at::Tensor& count) {
  state(out_of_range_) = state(out_of_range_).add(count);
}

at::Tensor ClassificationMetric::unless_out_of_range(const at::Tensor& value) const {
  return value.masked_fill(state(out_of_range_).gt(0), std::numeric_limits<double>::quiet_NaN());
}

void ClassificationMetric::throw_if_out_of_range() const {
  const auto count = state(out_of_range_).item<int64_t>();
  if (count == 0) return;
  throw Error(name() + ": " + count_of(count, "label") + " on " + state(out_of_range_).device().str() +
              " were out of range. Labels are 0 to " + std::to_string(spec_.values() - 1) +
              "; on the CPU the first one is named.");
}

}  // namespace levin::metrics
