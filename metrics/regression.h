// Metrics of regression: mean absolute and squared error, R2, Pearson correlation and cosine similarity. Names, options
// and values follow torchmetrics.regression.
//
//   levin::metrics::MeanSquaredError rmse_{{.squared = false}};   // in the module
//   rmse_(preds, target);                                         // in validation_step
//
// preds and target have the same shape, on one device, of any real type; sums are in double. update() throws Error
// naming the metric, both shapes or devices if they do not fit; constructors throw ConfigError naming the option. Every
// rank updates its own object (metric.h).
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

/// Options of MeanAbsoluteError.
struct MeanAbsoluteErrorOptions {
  int64_t num_outputs = 1;  // more than one: preds and target are (N, num_outputs), and the value is one for each

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("num_outputs", &MeanAbsoluteErrorOptions::num_outputs, "columns that each have a value").min(1));
  }
};

/// Options of MeanSquaredError.
struct MeanSquaredErrorOptions {
  bool squared = true;  // false: the root of the mean (RMSE)
  int64_t num_outputs = 1;

  template <class = void>
  static auto fields() {
    using O = MeanSquaredErrorOptions;
    return levin::fields(field("squared", &O::squared, "false: the root of the mean squared error"),
                         field("num_outputs", &O::num_outputs, "columns that each have a value").min(1));
  }
};

/// The base of the two below: the mean of errors over all elements. Shapes: (N, ...), or (N, num_outputs). Value: a
/// scalar, or (num_outputs); nan before the first sample.
class MeanError : public TensorMetric {
 public:
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;

 protected:
  MeanError(const std::string& state_name, bool is_squared, int64_t num_outputs);

 private:
  bool is_squared_;
  int64_t num_outputs_;
};

/// The mean of |preds - target|.
class MeanAbsoluteError : public MeanError {
 public:
  using Options = MeanAbsoluteErrorOptions;
  explicit MeanAbsoluteError(Defaults = {}) : MeanAbsoluteError(MeanAbsoluteErrorOptions()) {}
  explicit MeanAbsoluteError(MeanAbsoluteErrorOptions options);
  [[nodiscard]] std::string name() const override { return "MeanAbsoluteError"; }
};

/// The mean of (preds - target)^2, or its root.
class MeanSquaredError : public MeanError {
 public:
  using Options = MeanSquaredErrorOptions;
  explicit MeanSquaredError(Defaults = {}) : MeanSquaredError(MeanSquaredErrorOptions()) {}
  explicit MeanSquaredError(MeanSquaredErrorOptions options);
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MeanSquaredError"; }

 private:
  bool takes_root_;
};

/// How the scores of several outputs are reduced. variance_weighted: their mean weighted by the variances of the
/// targets, or the plain mean if no target varies.
enum class Multioutput { raw_values, uniform_average, variance_weighted };

/// Options of R2Score.
struct R2ScoreOptions {
  int64_t adjusted = 0;  // independent regressors, for the adjusted score; 0: not adjusted
  EnumOption<Multioutput> multioutput = Multioutput::uniform_average;
  int64_t num_outputs = 1;  // torchmetrics finds it out from the first batch; here states have a shape from the start

  template <class = void>
  static auto fields() {
    using O = R2ScoreOptions;
    return levin::fields(field("adjusted", &O::adjusted, "independent regressors, for the adjusted score").min(0),
                         field("multioutput", &O::multioutput, "how the scores of several outputs are reduced"),
                         field("num_outputs", &O::num_outputs, "columns of preds and target").min(1));
  }
};

/// The coefficient of determination, 1 - sum (target - preds)^2 / sum (target - mean)^2: the fraction of the targets'
/// variance that predictions explain. Shapes: (N) or (N, 1), or (N, num_outputs). An output whose predictions are all
/// correct is 1; any other output whose targets do not vary is 0. Value: a scalar, or (num_outputs) with raw_values.
class R2Score : public TensorMetric {
 public:
  using Options = R2ScoreOptions;
  explicit R2Score(Defaults = {}) : R2Score(R2ScoreOptions()) {}
  explicit R2Score(R2ScoreOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  void merge(const MetricStates& other, int64_t updates) override;
  /// Throws TooFewSamplesError for fewer than two samples. Waits for the device.
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "R2Score"; }

 private:
  R2ScoreOptions options_;
};

/// Options of PearsonCorrCoef.
struct PearsonCorrCoefOptions {
  int64_t num_outputs = 1;  // more than one: preds and target are (N, num_outputs), and the value is one for each

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("num_outputs", &PearsonCorrCoefOptions::num_outputs, "columns that each have a value").min(1));
  }
};

/// The linear correlation of predictions and targets, from -1 to 1; nan where one of them does not vary. Shapes: (N) or
/// (N, 1), or (N, num_outputs). States are means and centered sums, so that large means lose no digits; the states of
/// two ranks are combined by the formula of Chan, Golub and LeVeque (1983).
class PearsonCorrCoef : public TensorMetric {
 public:
  using Options = PearsonCorrCoefOptions;
  explicit PearsonCorrCoef(Defaults = {}) : PearsonCorrCoef(PearsonCorrCoefOptions()) {}
  explicit PearsonCorrCoef(PearsonCorrCoefOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  void merge(const MetricStates& other, int64_t updates) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "PearsonCorrCoef"; }

 private:
  PearsonCorrCoefOptions options_;
};

/// Options of CosineSimilarity.
struct CosineSimilarityOptions {
  EnumOption<Reduction> reduction = Reduction::sum;

  template <class = void>
  static auto fields() {
    return levin::fields(
        field("reduction", &CosineSimilarityOptions::reduction, "how the similarities of samples are reduced"));
  }
};

/// The cosine of the angle between each row of preds and of target. Shapes: (N, D). A row of zeros gives nan. Value: a
/// scalar, or (N) with the reduction none. torchmetrics keeps all batches until compute(); here their similarities, or
/// the sum of them, are kept.
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

namespace levin {

template <>
struct EnumNames<metrics::Multioutput> {
  static constexpr EnumName<metrics::Multioutput> names[] = {
      {"raw_values", metrics::Multioutput::raw_values},
      {"uniform_average", metrics::Multioutput::uniform_average},
      {"variance_weighted", metrics::Multioutput::variance_weighted}};
};

}  // namespace levin
