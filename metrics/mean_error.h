// MeanAbsoluteError and MeanSquaredError.
//
//   levin::metrics::MeanSquaredError rmse_{{.squared = false}};
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct MeanAbsoluteErrorOptions {
  int64_t num_outputs = 1;  // more than one: preds and target are (N, num_outputs), and the value is one for each

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("num_outputs", &MeanAbsoluteErrorOptions::num_outputs, "columns that each have their own value").min(1));
  }
};

struct MeanSquaredErrorOptions {
  bool squared = true;  // false: the root of the mean (RMSE)
  int64_t num_outputs = 1;

  template <class = void>
  static auto fields() {
    using O = MeanSquaredErrorOptions;
    return levin::fields(field("squared", &O::squared, "false: the root of the mean squared error"),
                         field("num_outputs", &O::num_outputs, "columns that each have their own value").min(1));
  }
};

/// The mean of |preds - target| over all elements. Shapes: (N, ...), or (N, num_outputs).
class MeanAbsoluteError : public TensorMetric {
 public:
  using Options = MeanAbsoluteErrorOptions;
  explicit MeanAbsoluteError(Defaults = {}) : MeanAbsoluteError(MeanAbsoluteErrorOptions()) {}
  explicit MeanAbsoluteError(MeanAbsoluteErrorOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MeanAbsoluteError"; }

 private:
  MeanAbsoluteErrorOptions options_;
};

/// The mean of (preds - target)^2 over all elements, or its root. Shapes: (N, ...), or (N, num_outputs).
class MeanSquaredError : public TensorMetric {
 public:
  using Options = MeanSquaredErrorOptions;
  explicit MeanSquaredError(Defaults = {}) : MeanSquaredError(MeanSquaredErrorOptions()) {}
  explicit MeanSquaredError(MeanSquaredErrorOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MeanSquaredError"; }

 private:
  MeanSquaredErrorOptions options_;
};

}  // namespace levin::metrics
