#include "levin/metrics/cosine_similarity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

at::Tensor cosines_of(const PairBatch& batch) {
  const at::Tensor& x = batch.preds;
  const at::Tensor& y = batch.target;
  if (batch.on_cpu()) {
    at::Tensor cosines = at::empty({x.size(0)}, at::kDouble);
    with_values(batch, [&](const auto* a, const auto* b) {
      row_cosines(a, b, x.size(0), x.size(1), cosines.mutable_data_ptr<double>());
    });
    return cosines;
  }
  const auto row_sum = [](const at::Tensor& values) { return at::sum(values, at::IntArrayRef{1}, false, at::kDouble); };
  return at::div(row_sum(x * y), at::sqrt(row_sum(x * x)) * at::sqrt(row_sum(y * y)));
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
  const at::Tensor cosines = cosines_of(batch);
  if (options_.reduction == Reduction::none) {
    append(0, cosines);
  } else {
    state(0).add_(cosines.sum());
    state(1).add_(cosines.size(0));
  }
}

at::Tensor CosineSimilarity::compute() const {
  if (options_.reduction == Reduction::none) return rows(0);
  return options_.reduction == Reduction::sum ? state(0).clone() : at::div(state(0), state(1));
}

}  // namespace levin::metrics
