#include "levin/metrics/mean_error.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/div.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

at::Tensor zeros_for(int64_t num_outputs) {
  return num_outputs == 1 ? at::zeros({}, at::kDouble) : at::zeros({num_outputs}, at::kDouble);
}

// Adds a batch's errors and their number.
template <bool squared>
void add_errors(const PairBatch& batch, const OutputShape& shape, at::Tensor& sum, at::Tensor& total) {
  if (batch.on_cpu()) {
    double* into = sum.mutable_data_ptr<double>();
    with_values(batch, [&](const auto* x, const auto* y) {
      if constexpr (squared) {
        add_squared_errors(x, y, shape.rows, shape.columns, into);
      } else {
        add_absolute_errors(x, y, shape.rows, shape.columns, into);
      }
    });
    *total.mutable_data_ptr<int64_t>() += shape.rows;
    return;
  }
  const at::Tensor difference = at::sub(batch.preds, batch.target);
  const at::Tensor errors = squared ? at::square(difference) : at::abs(difference);
  sum.add_(shape.columns == 1 ? at::sum(errors, at::kDouble)
                              : at::sum(errors, at::IntArrayRef{0}, /*keepdim=*/false, at::kDouble));
  total.add_(shape.rows);
}

}  // namespace

MeanAbsoluteError::MeanAbsoluteError(MeanAbsoluteErrorOptions options)
    : options_(checked(options, "MeanAbsoluteErrorOptions")) {
  add_state("sum_abs_error", StateReduce::sum, zeros_for(options_.num_outputs));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void MeanAbsoluteError::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, options_.num_outputs, false);
  begin_update(batch.preds.device());
  add_errors<false>(batch, shape, state(0), state(1));
}

at::Tensor MeanAbsoluteError::compute() const {
  return at::div(state(0), state(1));
}

MeanSquaredError::MeanSquaredError(MeanSquaredErrorOptions options)
    : options_(checked(options, "MeanSquaredErrorOptions")) {
  add_state("sum_squared_error", StateReduce::sum, zeros_for(options_.num_outputs));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void MeanSquaredError::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, options_.num_outputs, false);
  begin_update(batch.preds.device());
  add_errors<true>(batch, shape, state(0), state(1));
}

at::Tensor MeanSquaredError::compute() const {
  const at::Tensor mean = at::div(state(0), state(1));
  return options_.squared ? mean : at::sqrt(mean);
}

}  // namespace levin::metrics
