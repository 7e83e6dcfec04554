// The base of classification metrics: what their labels are, and what happens to labels that are out of range.
#pragma once

#include <string>
#include <utility>

#include "levin/metrics/label_batch.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

// Labels out of range are an error of update() on the CPU. On another device it would have to wait for them, so they
// are counted there, are left out of all other counts, and make the value NaN.
class ClassificationMetric : public TensorMetric {
 public:
  [[nodiscard]] std::string name() const override { return spec_.metric; }

 protected:
  explicit ClassificationMetric(LabelSpec spec);

  [[nodiscard]] const LabelSpec& spec() const { return spec_; }
  /// How many labels of a batch were out of range: a scalar on its device.
  void add_out_of_range(const at::Tensor& count);
  /// `value`, or NaN in its place if labels were out of range.
  [[nodiscard]] at::Tensor unless_out_of_range(const at::Tensor& value) const;
  /// The same for a metric whose value has no NaN: throws Error.
  void throw_if_out_of_range() const;

 private:
  LabelSpec spec_;
  size_t out_of_range_;
};

}  // namespace levin::metrics
