#include "levin/metrics/regression.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <numeric>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

// The states of R2Score and of PearsonCorrCoef.
enum : size_t { means, squares, residuals, total };
enum : size_t { mean_x, mean_y, var_x, var_y, corr_xy, n_total };

double score_of(double residual, double variation) {
  if (residual == 0) return 1;
  return variation == 0 ? 0 : 1 - residual / variation;
}

// Combines the means of two sets of samples, and the sums of squares around them (Chan, Golub and LeVeque 1983). The
// difference of two sums would lose the variation of targets far from 0.
void add_targets(MetricStates& all, const at::Tensor& mean, const at::Tensor& squares_around, const at::Tensor& count) {
  const at::Tensor before = all[total].to(at::kDouble);
  const at::Tensor fraction = count / (before + count).clamp_min(1);
  const at::Tensor distance = mean - all[means];
  all[means] = all[means] + distance * fraction;
  all[squares] = all[squares] + squares_around + distance * distance * (before * fraction);
}

// Combines the means and centered sums of two sets of samples (Chan, Golub and LeVeque 1983).
void add_moments(double* const* all, int64_t j, const Moments& batch, double count) {
  const double before = all[n_total][j];
  const double after = before + count;
  if (count == 0) return;
  const double dx = batch.mean_x - all[mean_x][j];
  const double dy = batch.mean_y - all[mean_y][j];
  const double weight = before * count / after;
  all[mean_x][j] += dx * count / after;
  all[mean_y][j] += dy * count / after;
  all[var_x][j] += batch.squares_x + dx * dx * weight;
  all[var_y][j] += batch.squares_y + dy * dy * weight;
  all[corr_xy][j] += batch.products + dx * dy * weight;
  all[n_total][j] = after;
}

// The same for tensors on any device; no number is read. Two empty sets give an empty set.
void merge_moments(MetricStates& a, const MetricStates& b) {
  const at::Tensor after = a[n_total] + b[n_total];
  const at::Tensor fraction = b[n_total] / after.clamp_min(1);
  const at::Tensor weight = a[n_total] * fraction;
  const at::Tensor dx = b[mean_x] - a[mean_x];
  const at::Tensor dy = b[mean_y] - a[mean_y];
  a[mean_x] = a[mean_x] + dx * fraction;
  a[mean_y] = a[mean_y] + dy * fraction;
  a[var_x] = a[var_x] + b[var_x] + dx * dx * weight;
  a[var_y] = a[var_y] + b[var_y] + dy * dy * weight;
  a[corr_xy] = a[corr_xy] + b[corr_xy] + dx * dy * weight;
  a[n_total] = after;
}

MetricStates moments_of(const at::Tensor& preds, const at::Tensor& target, double rows) {
  const at::Tensor x = preds.to(at::kDouble);
  const at::Tensor y = target.to(at::kDouble);
  MetricStates all(6);
  all[mean_x] = x.mean(0);
  all[mean_y] = y.mean(0);
  const at::Tensor dx = x - all[mean_x];
  const at::Tensor dy = y - all[mean_y];
  all[var_x] = (dx * dx).sum(0);
  all[var_y] = (dy * dy).sum(0);
  all[corr_xy] = (dx * dy).sum(0);
  all[n_total] = at::full_like(all[mean_x], rows);
  return all;
}

void cosines_on_cpu(const PairBatch& batch, double* into) {
  with_values(batch,
              [&](const auto* x, const auto* y) { row_cosines(x, y, batch.preds.size(0), batch.preds.size(1), into); });
}

double sum_of_cosines(const PairBatch& batch) {
  std::vector<double> cosines(static_cast<size_t>(batch.preds.size(0)));
  cosines_on_cpu(batch, cosines.data());
  return std::accumulate(cosines.begin(), cosines.end(), 0.0);
}

at::Tensor cosines_of(const PairBatch& batch) {
  const at::Tensor& x = batch.preds;
  const at::Tensor& y = batch.target;
  if (batch.on_cpu()) {
    at::Tensor cosines = at::empty({x.size(0)}, at::kDouble);
    cosines_on_cpu(batch, cosines.mutable_data_ptr<double>());
    return cosines;
  }
  const at::Tensor a = x.to(at::kDouble), b = y.to(at::kDouble);  // squares of small floats are 0
  const auto row_sum = [](const at::Tensor& values) { return at::sum(values, at::IntArrayRef{1}); };
  return at::div(row_sum(a * b), at::sqrt(row_sum(a * a)) * at::sqrt(row_sum(b * b)));
}

}  // namespace

MeanError::MeanError(const std::string& state_name, bool is_squared, int64_t num_outputs)
    : is_squared_(is_squared), num_outputs_(num_outputs) {
  const std::vector<int64_t> sizes(num_outputs == 1 ? 0 : 1, num_outputs);
  add_state(state_name, StateReduce::sum, at::zeros(sizes, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void MeanError::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, num_outputs_, false);
  begin_update(batch.preds.device());
  if (batch.on_cpu()) {
    double* into = state(0).mutable_data_ptr<double>();
    with_values(batch, [&](const auto* x, const auto* y) {
      (is_squared_ ? add_errors<true>(x, y, shape.rows, shape.columns, into)
                   : add_errors<false>(x, y, shape.rows, shape.columns, into));
    });
    *state(1).mutable_data_ptr<int64_t>() += shape.rows;
    return;
  }
  const at::Tensor difference = at::sub(batch.preds, batch.target);
  const at::Tensor errors = is_squared_ ? at::square(difference) : at::abs(difference);
  state(0).add_(shape.columns == 1 ? at::sum(errors, at::kDouble)
                                   : at::sum(errors, at::IntArrayRef{0}, /*keepdim=*/false, at::kDouble));
  state(1).add_(shape.rows);
}

at::Tensor MeanError::compute() const {
  return at::div(state(0), state(1));
}

MeanAbsoluteError::MeanAbsoluteError(MeanAbsoluteErrorOptions options)
    : MeanError("sum_abs_error", false, checked(options, "MeanAbsoluteErrorOptions").num_outputs) {}

MeanSquaredError::MeanSquaredError(MeanSquaredErrorOptions options)
    : MeanError("sum_squared_error", true, checked(options, "MeanSquaredErrorOptions").num_outputs),
      takes_root_(!options.squared) {}

at::Tensor MeanSquaredError::compute() const {
  return takes_root_ ? at::sqrt(MeanError::compute()) : MeanError::compute();
}

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
        const double distance = sums[j].mean - mean, fraction = rows / (before + rows);
        mean += distance * fraction;
        state(squares).mutable_data_ptr<double>()[j] += sums[j].squares + distance * distance * (before * fraction);
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

PearsonCorrCoef::PearsonCorrCoef(PearsonCorrCoefOptions options)
    : options_(checked(options, "PearsonCorrCoefOptions")) {
  for (const char* name : {"mean_x", "mean_y", "var_x", "var_y", "corr_xy", "n_total"}) {
    add_state(name, StateReduce::sum, at::zeros({options_.num_outputs}, at::kDouble));  // see merge()
  }
}

void PearsonCorrCoef::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const OutputShape shape = output_shape(name(), batch.preds, options_.num_outputs, true);
  begin_update(batch.preds.device());
  if (shape.rows == 0) return;
  const double count = static_cast<double>(shape.rows);
  if (batch.on_cpu()) {
    double* all[6];
    for (size_t k = 0; k < 6; ++k) all[k] = state(k).mutable_data_ptr<double>();
    with_values(batch, [&](const auto* x, const auto* y) {
      const auto columns = moments(x, y, shape.rows, shape.columns);
      for (size_t j = 0; j < columns.size(); ++j) add_moments(all, static_cast<int64_t>(j), columns[j], count);
    });
    return;
  }
  MetricStates all;
  for (size_t k = 0; k < 6; ++k) all.push_back(state(k));
  const auto columns = [&](const at::Tensor& values) { return values.reshape({shape.rows, shape.columns}); };
  merge_moments(all, moments_of(columns(batch.preds), columns(batch.target), count));
  for (size_t k = 0; k < 6; ++k) state(k) = all[k];
}

void PearsonCorrCoef::merge(const MetricStates& other, int64_t updates) {
  MetricStates all = states();
  MetricStates here;
  for (size_t k = 0; k < all.size(); ++k) here.push_back(other[k].to(all[k].device()));
  merge_moments(all, here);
  set_states(all, update_count() + updates);
}

at::Tensor PearsonCorrCoef::compute() const {
  const at::Tensor spread = at::sqrt(state(var_x)) * at::sqrt(state(var_y));
  const at::Tensor nan = at::full_like(spread, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor value = at::where(spread > 0, at::clamp(state(corr_xy) / spread, -1.0, 1.0), nan);
  return options_.num_outputs == 1 ? value.squeeze(0) : value;
}

CosineSimilarity::CosineSimilarity(CosineSimilarityOptions options)
    : options_(checked(options, "CosineSimilarityOptions")) {
  if (options_.reduction == Reduction::none) {
    add_state("similarities", StateReduce::cat);
    return;
  }
  add_state("similarity", StateReduce::sum, at::zeros({}, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void CosineSimilarity::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  if (batch.preds.dim() != 2) {
    throw Error("CosineSimilarity: preds and target have the shape " + shape_of(preds) +
                ". Give them the shape (N, D): N samples of D dimensions.");
  }
  begin_update(batch.preds.device());
  if (options_.reduction == Reduction::none) {
    append_own(0, cosines_of(batch));
  } else if (batch.on_cpu()) {  // operators on single numbers would take longer than the loop
    *state(0).mutable_data_ptr<double>() += sum_of_cosines(batch);
    *state(1).mutable_data_ptr<int64_t>() += batch.preds.size(0);
  } else {
    const at::Tensor cosines = cosines_of(batch);
    state(0).add_(cosines.sum());
    state(1).add_(cosines.size(0));
  }
}

at::Tensor CosineSimilarity::compute() const {
  if (options_.reduction == Reduction::none) return rows(0);
  return options_.reduction == Reduction::sum ? state(0).clone() : at::div(state(0), state(1));
}

}  // namespace levin::metrics
