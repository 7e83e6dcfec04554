#include "levin/metrics/r2_score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

enum : size_t { squared_targets, targets, residuals, total };

// torchmetrics' bound for a sum of squares that counts as 0.
constexpr double kNothing = 1e-4;

double score_of(double residual, double variation) {
  if (std::abs(residual) <= kNothing) return 1;
  return std::abs(variation) <= kNothing ? 0 : 1 - residual / variation;
}

}  // namespace

R2Score::R2Score(R2ScoreOptions options) : options_(checked(options, "R2ScoreOptions")) {
  add_state("sum_squared_error", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));
  add_state("sum_error", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));
  add_state("residual", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void R2Score::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, options_.num_outputs, true);
  begin_update(batch.preds.device());
  if (batch.on_cpu()) {
    with_values(batch, [&](const auto* x, const auto* y) {
      const auto sums = target_sums(x, y, shape.rows, shape.columns);
      for (size_t j = 0; j < sums.size(); ++j) {
        state(squared_targets).mutable_data_ptr<double>()[j] += sums[j].squared_target;
        state(targets).mutable_data_ptr<double>()[j] += sums[j].target;
        state(residuals).mutable_data_ptr<double>()[j] += sums[j].squared_error;
      }
    });
    *state(total).mutable_data_ptr<int64_t>() += shape.rows;
    return;
  }
  const at::Tensor truth = batch.target.reshape({shape.rows, shape.columns}).to(at::kDouble);
  const at::Tensor residual = at::sub(truth, batch.preds.reshape({shape.rows, shape.columns}));
  state(squared_targets).add_((truth * truth).sum(0));
  state(targets).add_(truth.sum(0));
  state(residuals).add_((residual * residual).sum(0));
  state(total).add_(shape.rows);
}

at::Tensor R2Score::compute() const {
  const PlainOps plain;
  const auto samples = state(total).item<int64_t>();
  if (samples < 2) {
    throw Error("R2Score: it was given " + count_of(samples, "sample") +
                ", and needs at least two. Give it more before compute().");
  }
  const double n = static_cast<double>(samples);
  at::Tensor scores = at::empty({options_.num_outputs}, at::kDouble);
  double sum = 0, weighted = 0, variations = 0;
  const at::Tensor squares = state(squared_targets).cpu(), sums = state(targets).cpu(), errors = state(residuals).cpu();
  for (int64_t j = 0; j < options_.num_outputs; ++j) {
    const double target = sums.const_data_ptr<double>()[j];
    const double variation = squares.const_data_ptr<double>()[j] - target * (target / n);
    const double score = score_of(errors.const_data_ptr<double>()[j], variation);
    scores.mutable_data_ptr<double>()[j] = score;
    sum += score;
    weighted += variation * score;
    variations += variation;
  }
  at::Tensor value = options_.num_outputs == 1 ? scores.squeeze(0) : scores;
  if (options_.multioutput != Multioutput::raw_values) {
    const double mean = sum / static_cast<double>(options_.num_outputs);
    value = at::empty({}, at::kDouble)
                .fill_(options_.multioutput == Multioutput::uniform_average ? mean : weighted / variations);
  }
  if (options_.adjusted == 0) return value;
  if (options_.adjusted >= samples - 1) {
    Console::instance().warn(
        "R2Score: the score is not adjusted, because there are not more samples than regressors "
        "plus one. Lower .adjusted, or give it more samples.");
    return value;
  }
  const double factor = (n - 1) / (n - static_cast<double>(options_.adjusted) - 1);
  return 1 - (1 - value) * factor;
}

}  // namespace levin::metrics
