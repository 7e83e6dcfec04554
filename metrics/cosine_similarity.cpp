#include "levin/metrics/cosine_similarity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <vector>

#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

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
