// Metrics of values that are computed elsewhere: MeanMetric, SumMetric, MinMetric and MaxMetric.
//
//   levin::metrics::MeanMetric loss_;
//   loss_(loss, /*weight=*/batch_size);
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// What happens to values that are nan. error: update() throws; warn: they are left out, with a warning; ignore: they
/// are left out; disable: they are values as others. On a device other than the CPU, where update() reads no number,
/// error and warn come from compute().
enum class NanStrategy { error, warn, ignore, disable };

struct AggregationOptions {
  std::variant<double, NanStrategy> nan_strategy = NanStrategy::warn;  // a number takes the place of nan

  template <class = void>
  static auto fields() {
    return levin::fields(field("nan_strategy", &AggregationOptions::nan_strategy,
                               "what happens to values that are nan; a number takes their place"));
  }
};

/// The base of the four. Values are a number or a tensor of any shape; without values nothing changes.
class AggregationMetric : public Metric {
 public:
  void update(const at::Tensor& value) { add(value, nullptr); }
  void update(double value) { add(value, 1.0); }
  void operator()(const at::Tensor& value) {
    update_and_keep([&] { update(value); });
  }
  void operator()(double value) {
    update_and_keep([&] { update(value); });
  }

 protected:
  explicit AggregationMetric(AggregationOptions options);

  /// The sums of a batch, without nan.
  struct Sums {
    at::Tensor weighted, weight, lowest, highest;
  };
  virtual void add_sums(const Sums& sums) = 0;
  /// The same from numbers.
  struct Numbers {
    double weighted = 0, weight = 0, lowest = 0, highest = 0;
  };
  virtual void add_numbers(const Numbers& numbers) = 0;

  void add(const at::Tensor& value, const at::Tensor* weight);
  void add(double value, double weight);
  /// Throws or warns about nan on a device; every compute() begins with it.
  void report_nans() const;
  /// A subclass calls it after its own states.
  void add_nan_state();

 private:
  void add_on_cpu(const at::Tensor& value, const at::Tensor* weight);
  void add_on_device(const at::Tensor& value, const at::Tensor* weight);
  [[nodiscard]] bool is(NanStrategy strategy) const;
  void handle_nans(Numbers& numbers, int64_t nans) const;

  AggregationOptions options_;
  size_t nans_ = 0;
};

/// The mean of values by their weights; nan without values.
class MeanMetric : public AggregationMetric {
 public:
  using Options = AggregationOptions;
  explicit MeanMetric(Defaults = {}) : MeanMetric(AggregationOptions()) {}
  explicit MeanMetric(AggregationOptions options);
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
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MeanMetric"; }

 protected:
  void add_sums(const Sums& sums) override;
  void add_numbers(const Numbers& numbers) override;
};

/// The sum of values; 0 without values.
class SumMetric : public AggregationMetric {
 public:
  using Options = AggregationOptions;
  explicit SumMetric(Defaults = {}) : SumMetric(AggregationOptions()) {}
  explicit SumMetric(AggregationOptions options);
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "SumMetric"; }

 protected:
  void add_sums(const Sums& sums) override;
  void add_numbers(const Numbers& numbers) override;
};

/// The lowest value; infinity without values.
class MinMetric : public AggregationMetric {
 public:
  using Options = AggregationOptions;
  explicit MinMetric(Defaults = {}) : MinMetric(AggregationOptions()) {}
  explicit MinMetric(AggregationOptions options);
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MinMetric"; }

 protected:
  void add_sums(const Sums& sums) override;
  void add_numbers(const Numbers& numbers) override;
};

/// The highest value; -infinity without values.
class MaxMetric : public AggregationMetric {
 public:
  using Options = AggregationOptions;
  explicit MaxMetric(Defaults = {}) : MaxMetric(AggregationOptions()) {}
  explicit MaxMetric(AggregationOptions options);
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MaxMetric"; }

 protected:
  void add_sums(const Sums& sums) override;
  void add_numbers(const Numbers& numbers) override;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::NanStrategy> {
  static constexpr std::array names{
      std::pair{"error", metrics::NanStrategy::error}, std::pair{"warn", metrics::NanStrategy::warn},
      std::pair{"ignore", metrics::NanStrategy::ignore}, std::pair{"disable", metrics::NanStrategy::disable}};
};

}  // namespace levin
