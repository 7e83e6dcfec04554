#include "levin/metrics/r2_score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

enum : size_t { means, squares, residuals, total };

double score_of(double residual, double variation) {
  if (residual == 0) return 1;
  return variation == 0 ? 0 : 1 - residual / variation;
}

// Chan, Golub and LeVeque: means, and sums of squares around them, of two sets of samples become those of both. The
// difference of two sums would lose the variation of targets that are far from 0.
void add_targets(MetricStates& all, const at::Tensor& mean, const at::Tensor& squares_around, const at::Tensor& count) {
  const at::Tensor before = all[total].to(at::kDouble);
  const at::Tensor share = count / (before + count).clamp_min(1);
  const at::Tensor distance = mean - all[means];
  all[means] = all[means] + distance * share;
  all[squares] = all[squares] + squares_around + distance * distance * (before * share);
}

}  // namespace

R2Score::R2Score(R2ScoreOptions options) : options_(checked(options, "R2ScoreOptions")) {
  add_state("mean", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));  // see merge()
  add_state("squares", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));
  add_state("residual", StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void R2Score::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, options_.num_outputs, true);
  begin_update(batch.preds.device());
  if (shape.rows == 0) return;
  if (batch.on_cpu()) {
    const auto rows = static_cast<double>(shape.rows);
    const auto before = static_cast<double>(*state(total).const_data_ptr<int64_t>());
    with_values(batch, [&](const auto* x, const auto* y) {
      const auto sums = target_sums(x, y, shape.rows, shape.columns);
      for (size_t j = 0; j < sums.size(); ++j) {
        double& mean = state(means).mutable_data_ptr<double>()[j];
        const double distance = sums[j].mean - mean, share = rows / (before + rows);
        mean += distance * share;
        state(squares).mutable_data_ptr<double>()[j] += sums[j].squares + distance * distance * (before * share);
        state(residuals).mutable_data_ptr<double>()[j] += sums[j].squared_error;
      }
    });
    *state(total).mutable_data_ptr<int64_t>() += shape.rows;
    return;
  }
  const at::Tensor truth = batch.target.reshape({shape.rows, shape.columns}).to(at::kDouble);
  const at::Tensor residual = at::sub(truth, batch.preds.reshape({shape.rows, shape.columns}));
  const at::Tensor mean = truth[0] + (truth - truth[0]).mean(0);  // of equal targets exactly their value
  MetricStates all = {state(means), state(squares), state(residuals), state(total)};
  add_targets(all, mean, (truth - mean).square().sum(0), at::full_like(mean, static_cast<double>(shape.rows)));
  state(means) = all[means];
  state(squares) = all[squares];
  state(residuals).add_((residual * residual).sum(0));
  state(total).add_(shape.rows);
}

void R2Score::merge(const MetricStates& other, int64_t updates) {
  MetricStates all = states();
  const auto here = [&](size_t k) { return other[k].to(all[k].device()); };
  add_targets(all, here(means), here(squares), here(total).to(at::kDouble));
  all[residuals] = all[residuals] + here(residuals);
  all[total] = all[total] + here(total);
  set_states(all, update_count() + updates);
}

at::Tensor R2Score::compute() const {
  const PlainOps plain;
  const auto samples = state(total).item<int64_t>();
  if (samples < 2) {
    throw TooFewSamplesError("R2Score: it was given " + count_of(samples, "sample") +
                             ", and needs at least two. Give it more before compute().");
  }
  const double n = static_cast<double>(samples);
  at::Tensor scores = at::empty({options_.num_outputs}, at::kDouble);
  double sum = 0, weighted = 0, variations = 0;
  const at::Tensor around = state(squares).cpu(), errors = state(residuals).cpu();
  for (int64_t j = 0; j < options_.num_outputs; ++j) {
    const double variation = around.const_data_ptr<double>()[j];
    const double score = score_of(errors.const_data_ptr<double>()[j], variation);
    scores.mutable_data_ptr<double>()[j] = score;
    sum += score;
    weighted += variation * score;
    variations += variation;
  }
  at::Tensor value = options_.num_outputs == 1 ? scores.squeeze(0) : scores;
  if (options_.multioutput != Multioutput::raw_values) {
    const bool by_variance = options_.multioutput == Multioutput::variance_weighted && variations > 0;
    value = at::empty({}, at::kDouble)
                .fill_(by_variance ? weighted / variations : sum / static_cast<double>(options_.num_outputs));
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
