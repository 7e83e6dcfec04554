// Metrics of values that are computed elsewhere: MeanMetric, SumMetric, MinMetric and MaxMetric, as in torchmetrics.
//
//   levin::metrics::MeanMetric loss_;           // in the module
//   loss_(loss, /*weight=*/batch_size);         // in training_step
//   log("loss", loss_);
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// What happens to values that are nan. error: update() throws; warn: they are left out, with a warning; ignore: they
/// are left out; disable: they are treated as any other value. On a device other than the CPU, where update() reads no
/// number, error and warn come from compute().
enum class NanStrategy { error, warn, ignore, disable };

/// Options of Aggregation.
struct AggregationOptions {
  std::variant<double, NanStrategy> nan_strategy = NanStrategy::warn;  // a number replaces nan

  template <class = void>
  static auto fields() {
    return levin::fields(field("nan_strategy", &AggregationOptions::nan_strategy,
                               "what happens to values that are nan; a number replaces them"));
  }
};

/// The base of the four. Values are numbers, or tensors of any shape and real type; sums are in double. A tensor
/// without elements changes nothing. Value: a double scalar. update(), or compute() of values on a device, throws Error
/// for nan with the strategy error. Every rank updates its own object (metric.h).
class AggregationMetric : public Metric {
 public:
  using Options = AggregationOptions;
  void update(const at::Tensor& value) { add(value, nullptr); }
  void update(double value) { add(value, 1.0); }
  void operator()(const at::Tensor& value) {
    update_and_keep([&] { update(value); });
  }
  void operator()(double value) {
    update_and_keep([&] { update(value); });
  }
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return name_; }

 protected:
  /// `divides`: the value is the sum divided by the sum of the weights.
  AggregationMetric(std::string name, const std::string& state_name, StateReduce reduce, AggregationOptions options,
                    bool divides = false);

  void add(const at::Tensor& value, const at::Tensor* weight);
  void add(double value, double weight);

 private:
  /// The statistics of a batch, without nan.
  struct Numbers {
    double weighted = 0, weight = 0, lowest = 0, highest = 0;
  };
  void add_on_cpu(const at::Tensor& value, const at::Tensor* weight);
  void add_on_device(const at::Tensor& value, const at::Tensor* weight);
  void add_numbers(const Numbers& numbers);
  [[nodiscard]] bool is(NanStrategy strategy) const;
  void handle_nans(Numbers& numbers, int64_t nans) const;

  AggregationOptions options_;
  std::string name_;
  StateReduce reduce_;
  bool divides_;
  size_t nans_;
};

/// The mean of values, weighted; nan without values.
class MeanMetric : public AggregationMetric {
 public:
  explicit MeanMetric(Defaults = {}) : MeanMetric(AggregationOptions()) {}
  explicit MeanMetric(AggregationOptions options)
      : AggregationMetric("MeanMetric", "mean_value", StateReduce::sum, options, /*divides=*/true) {}
  using AggregationMetric::update;
  using AggregationMetric::operator();
  /// `weight`: a number, or a tensor that is broadcast to the shape of `value`.
  void update(const at::Tensor& value, const at::Tensor& weight) { add(value, &weight); }
  void update(const at::Tensor& value, double weight);
  void update(double value, double weight) { add(value, weight); }
  template <class Value, class Weight>
  void operator()(const Value& value, const Weight& weight) {
    update_and_keep([&] { update(value, weight); });
  }
};

/// The sum of values; 0 without values.
class SumMetric : public AggregationMetric {
 public:
  explicit SumMetric(Defaults = {}) : SumMetric(AggregationOptions()) {}
  explicit SumMetric(AggregationOptions options)
      : AggregationMetric("SumMetric", "sum_value", StateReduce::sum, options) {}
};

/// The lowest value; infinity without values.
class MinMetric : public AggregationMetric {
 public:
  explicit MinMetric(Defaults = {}) : MinMetric(AggregationOptions()) {}
  explicit MinMetric(AggregationOptions options)
      : AggregationMetric("MinMetric", "min_value", StateReduce::min, options) {}
};

/// The highest value; -infinity without values.
class MaxMetric : public AggregationMetric {
 public:
  explicit MaxMetric(Defaults = {}) : MaxMetric(AggregationOptions()) {}
  explicit MaxMetric(AggregationOptions options)
      : AggregationMetric("MaxMetric", "max_value", StateReduce::max, options) {}
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::NanStrategy> {
  static constexpr EnumName<metrics::NanStrategy> names[] = {{"error", metrics::NanStrategy::error},
                                                             {"warn", metrics::NanStrategy::warn},
                                                             {"ignore", metrics::NanStrategy::ignore},
                                                             {"disable", metrics::NanStrategy::disable}};
};

}  // namespace levin
