#include "levin/metrics/aggregation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/broadcast_to.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// float and contiguous as it is, all else as double.
at::Tensor readable(const at::Tensor& values) {
  return (values.scalar_type() == at::kFloat ? values : values.to(at::kDouble)).contiguous();
}

double& number(at::Tensor& state) {
  return *state.mutable_data_ptr<double>();
}

}  // namespace

AggregationMetric::AggregationMetric(AggregationOptions options) : options_(checked(options, "AggregationOptions")) {}

void AggregationMetric::add_nan_state() {
  nans_ = add_state("nans", StateReduce::sum, at::zeros({}, at::kLong));
}

bool AggregationMetric::is(NanStrategy strategy) const {
  const auto* chosen = std::get_if<NanStrategy>(&options_.nan_strategy);
  return chosen != nullptr && *chosen == strategy;
}

// `numbers` are without nan; what becomes of them.
void AggregationMetric::handle_nans(Numbers& numbers, int64_t nans) const {
  if (const auto* in_place = std::get_if<double>(&options_.nan_strategy)) {
    numbers.weighted += *in_place * static_cast<double>(nans);
    numbers.weight += static_cast<double>(nans);
    numbers.lowest = std::min(numbers.lowest, *in_place);
    numbers.highest = std::max(numbers.highest, *in_place);
    return;
  }
  switch (std::get<NanStrategy>(options_.nan_strategy)) {
    case NanStrategy::error:
      throw Error(name() + ": a value or its weight is nan. Find out why, or set .nan_strategy to ignore, or to a " +
                  "number that takes its place.");
    case NanStrategy::warn:
      Console::instance().warn(name() + ": values that are nan are left out. Set .nan_strategy to say what to do.");
      return;
    case NanStrategy::ignore: return;
    case NanStrategy::disable: numbers = {kNan, kNan, kNan, kNan};
  }
}

void AggregationMetric::add(double value, double weight) {
  Numbers numbers{value * weight, weight, value, value};
  if (std::isnan(value) || std::isnan(weight)) {
    numbers = {0, 0, kInfinity, -kInfinity};
    handle_nans(numbers, 1);
  }
  begin_update(at::kCPU);
  add_numbers(numbers);
}

void AggregationMetric::add(const at::Tensor& value, const at::Tensor* weight) {
  const PlainOps plain;
  if (value.numel() == 0) {
    begin_update(value.device());
  } else if (value.is_cpu()) {
    add_on_cpu(value, weight);
  } else {
    add_on_device(value, weight);
  }
}

void AggregationMetric::add_on_cpu(const at::Tensor& value, const at::Tensor* weight) {
  const at::Tensor values = readable(value);
  at::Tensor weights;
  if (weight != nullptr) {
    weights = at::broadcast_to(*weight, values.sizes()).to(values.device(), values.scalar_type()).contiguous();
  }
  const int64_t count = values.numel();
  ValueSums sums;
  if (values.scalar_type() == at::kFloat) {
    sums = value_sums(values.const_data_ptr<float>(), weight ? weights.const_data_ptr<float>() : nullptr, count);
  } else {
    sums = value_sums(values.const_data_ptr<double>(), weight ? weights.const_data_ptr<double>() : nullptr, count);
  }
  Numbers numbers{sums.weighted, sums.weight, sums.lowest, sums.highest};
  if (sums.nans > 0) handle_nans(numbers, sums.nans);
  begin_update(value.device());
  add_numbers(numbers);
}

void AggregationMetric::add_on_device(const at::Tensor& value, const at::Tensor* weight) {
  at::Tensor values = value.to(at::kDouble);
  at::Tensor weights = weight == nullptr ? at::ones_like(values)
                                         : at::broadcast_to(*weight, values.sizes()).to(values.device(), at::kDouble);
  begin_update(value.device());
  if (is(NanStrategy::disable)) {
    add_sums({(values * weights).sum(), weights.sum(), values.min(), values.max()});
    return;
  }
  const at::Tensor is_nan = at::isnan(values).logical_or(at::isnan(weights));
  const auto* in_place = std::get_if<double>(&options_.nan_strategy);
  values = at::where(is_nan, in_place != nullptr ? *in_place : 0.0, values);
  weights = at::where(is_nan, in_place != nullptr ? 1.0 : 0.0, weights);
  const bool leaves_out = in_place == nullptr;
  const at::Tensor low = leaves_out ? at::where(is_nan, kInfinity, values) : values;
  const at::Tensor high = leaves_out ? at::where(is_nan, -kInfinity, values) : values;
  add_sums({(values * weights).sum(), weights.sum(), low.min(), high.max()});
  if (leaves_out) state(nans_).add_(is_nan.sum());
}

void AggregationMetric::report_nans() const {
  if (!is(NanStrategy::error) && !is(NanStrategy::warn)) return;
  Numbers nothing;
  if (state(nans_).item<int64_t>() > 0) handle_nans(nothing, 0);
}

MeanMetric::MeanMetric(AggregationOptions options) : AggregationMetric(options) {
  add_state("mean_value", StateReduce::sum, at::zeros({}, at::kDouble));
  add_state("weight", StateReduce::sum, at::zeros({}, at::kDouble));
  add_nan_state();
}

void MeanMetric::update(const at::Tensor& value, double weight) {
  const at::Tensor one = at::full({}, weight, value.options().dtype(at::kDouble).requires_grad(false));
  add(value, &one);
}

void MeanMetric::add_sums(const Sums& sums) {
  state(0).add_(sums.weighted);
  state(1).add_(sums.weight);
}

void MeanMetric::add_numbers(const Numbers& numbers) {
  number(state(0)) += numbers.weighted;
  number(state(1)) += numbers.weight;
}

at::Tensor MeanMetric::compute() const {
  report_nans();
  return at::div(state(0), state(1));
}

SumMetric::SumMetric(AggregationOptions options) : AggregationMetric(options) {
  add_state("sum_value", StateReduce::sum, at::zeros({}, at::kDouble));
  add_nan_state();
}

void SumMetric::add_sums(const Sums& sums) {
  state(0).add_(sums.weighted);
}

void SumMetric::add_numbers(const Numbers& numbers) {
  number(state(0)) += numbers.weighted;
}

at::Tensor SumMetric::compute() const {
  report_nans();
  return state(0).clone();
}

MinMetric::MinMetric(AggregationOptions options) : AggregationMetric(options) {
  add_state("min_value", StateReduce::min, at::full({}, kInfinity, at::kDouble));
  add_nan_state();
}

void MinMetric::add_sums(const Sums& sums) {
  state(0) = at::minimum(state(0), sums.lowest);
}

void MinMetric::add_numbers(const Numbers& numbers) {
  double& lowest = number(state(0));
  if (std::isnan(lowest)) return;  // nan, which "disable" lets in, stays
  if (!(numbers.lowest >= lowest)) lowest = numbers.lowest;
}

at::Tensor MinMetric::compute() const {
  report_nans();
  return state(0).clone();
}

MaxMetric::MaxMetric(AggregationOptions options) : AggregationMetric(options) {
  add_state("max_value", StateReduce::max, at::full({}, -kInfinity, at::kDouble));
  add_nan_state();
}

void MaxMetric::add_sums(const Sums& sums) {
  state(0) = at::maximum(state(0), sums.highest);
}

void MaxMetric::add_numbers(const Numbers& numbers) {
  double& highest = number(state(0));
  if (std::isnan(highest)) return;
  if (!(numbers.highest <= highest)) highest = numbers.highest;
}

at::Tensor MaxMetric::compute() const {
  report_nans();
  return state(0).clone();
}

}  // namespace levin::metrics
