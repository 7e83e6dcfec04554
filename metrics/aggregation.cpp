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

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Contiguous: float unchanged, every other type as double.
at::Tensor readable(const at::Tensor& values) {
  return (values.scalar_type() == at::kFloat ? values : values.to(at::kDouble)).contiguous();
}

double& number(at::Tensor& state) {
  return *state.mutable_data_ptr<double>();
}

}  // namespace

AggregationMetric::AggregationMetric(std::string name, const std::string& state_name, StateReduce reduce,
                                     AggregationOptions options, bool divides)
    : options_(checked(options, "AggregationOptions")), name_(std::move(name)), reduce_(reduce), divides_(divides) {
  const double start = reduce == StateReduce::min ? kInfinity : reduce == StateReduce::max ? -kInfinity : 0.0;
  add_state(state_name, reduce, at::full({}, start, at::kDouble));
  if (divides) add_state("weight", StateReduce::sum, at::zeros({}, at::kDouble));
  nans_ = add_state("nans", StateReduce::sum, at::zeros({}, at::kLong));
}

bool AggregationMetric::is(NanStrategy strategy) const {
  const auto* chosen = std::get_if<NanStrategy>(&options_.nan_strategy);
  return chosen != nullptr && *chosen == strategy;
}

// Applies the strategy to `numbers`, in which `nans` values were left out.
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
                  "number that replaces it.");
    case NanStrategy::warn:
      Console::instance().warn(name() +
                               ": values that are nan are left out. Set .nan_strategy to choose what happens to them.");
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
  const at::Tensor values = value.to(at::kDouble);
  const at::Tensor weights = weight == nullptr
                                 ? at::ones_like(values)
                                 : at::broadcast_to(*weight, values.sizes()).to(values.device(), at::kDouble);
  begin_update(value.device());
  const auto* replacement = std::get_if<double>(&options_.nan_strategy);
  at::Tensor is_nan;  // undefined: nan is treated as any other value
  if (!is(NanStrategy::disable)) is_nan = at::isnan(values).logical_or(at::isnan(weights));
  const auto without_nan = [&](const at::Tensor& numbers, double left_out) {
    return is_nan.defined() ? at::where(is_nan, left_out, numbers) : numbers;
  };
  const auto usable = [&](double left_out) { return without_nan(values, replacement ? *replacement : left_out); };
  switch (reduce_) {
    case StateReduce::min: state(0) = at::minimum(state(0), usable(kInfinity).min()); break;
    case StateReduce::max: state(0) = at::maximum(state(0), usable(-kInfinity).max()); break;
    default: {
      const at::Tensor used = without_nan(weights, replacement ? 1.0 : 0.0);
      state(0).add_((usable(0) * used).sum());
      if (divides_) state(1).add_(used.sum());
    }
  }
  if (is_nan.defined() && replacement == nullptr) state(nans_).add_(is_nan.sum());
}

// nan, which the strategy disable lets in, stays in a minimum and a maximum.
void AggregationMetric::add_numbers(const Numbers& numbers) {
  double& value = number(state(0));
  switch (reduce_) {
    case StateReduce::min:
      if (!std::isnan(value) && !(numbers.lowest >= value)) value = numbers.lowest;
      break;
    case StateReduce::max:
      if (!std::isnan(value) && !(numbers.highest <= value)) value = numbers.highest;
      break;
    default: value += numbers.weighted;
  }
  if (divides_) number(state(1)) += numbers.weight;
}

at::Tensor AggregationMetric::compute() const {
  if (is(NanStrategy::error) || is(NanStrategy::warn)) {
    Numbers nothing;
    if (state(nans_).item<int64_t>() > 0) handle_nans(nothing, 0);
  }
  return divides_ ? at::div(state(0), state(1)) : state(0).clone();
}

void MeanMetric::update(const at::Tensor& value, double weight) {
  const at::Tensor one = at::full({}, weight, value.options().dtype(at::kDouble).requires_grad(false));
  add(value, &one);
}

}  // namespace levin::metrics
