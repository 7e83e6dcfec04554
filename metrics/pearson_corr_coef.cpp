#include "levin/metrics/pearson_corr_coef.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

enum : size_t { mean_x, mean_y, var_x, var_y, corr_xy, n_total };

// Chan, Golub and LeVeque: means and centered sums of two sets of samples become those of both.
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

// The same of tensors on any device; no number is read. Nothing and nothing stays nothing.
void merge_moments(MetricStates& a, const MetricStates& b) {
  const at::Tensor after = a[n_total] + b[n_total];
  const at::Tensor share = b[n_total] / after.clamp_min(1);
  const at::Tensor weight = a[n_total] * share;
  const at::Tensor dx = b[mean_x] - a[mean_x];
  const at::Tensor dy = b[mean_y] - a[mean_y];
  a[mean_x] = a[mean_x] + dx * share;
  a[mean_y] = a[mean_y] + dy * share;
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

}  // namespace

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

}  // namespace levin::metrics
