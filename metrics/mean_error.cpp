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

// The sum of errors of a batch that is not on the CPU.
void add_errors(const PairBatch& batch, int64_t num_outputs, bool squared, at::Tensor& sum) {
  const at::Tensor difference = at::sub(batch.preds, batch.target);
  const at::Tensor errors = squared ? at::square(difference) : at::abs(difference);
  sum.add_(num_outputs == 1 ? at::sum(errors, at::kDouble)
                            : at::sum(errors, at::IntArrayRef{0}, /*keepdim=*/false, at::kDouble));
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
  if (batch.on_cpu()) {
    double* sum = state(0).mutable_data_ptr<double>();
    with_values(batch,
                [&](const auto* x, const auto* y) { add_absolute_errors(x, y, shape.rows, shape.columns, sum); });
    *state(1).mutable_data_ptr<int64_t>() += shape.rows;
  } else {
    add_errors(batch, options_.num_outputs, false, state(0));
    state(1).add_(shape.rows);
  }
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
  if (batch.on_cpu()) {
    double* sum = state(0).mutable_data_ptr<double>();
    with_values(batch, [&](const auto* x, const auto* y) { add_squared_errors(x, y, shape.rows, shape.columns, sum); });
    *state(1).mutable_data_ptr<int64_t>() += shape.rows;
  } else {
    add_errors(batch, options_.num_outputs, true, state(0));
    state(1).add_(shape.rows);
  }
}

at::Tensor MeanSquaredError::compute() const {
  const at::Tensor mean = at::div(state(0), state(1));
  return options_.squared ? mean : at::sqrt(mean);
}

}  // namespace levin::metrics
