#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include "levin/metrics/classification.h"
#include "levin/metrics/label_loops.h"
#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

namespace {

// `zero_division` where both are 0.
at::Tensor quotient(const at::Tensor& both, const at::Tensor& either, double zero_division) {
  return at::where(either != 0, both / either, at::full_like(either, zero_division));
}

}  // namespace

ConfusionCounts::ConfusionCounts(LabelSpec given) : ClassificationMetric(std::move(given)) {
  const bool is_multiclass = spec().task == Task::multiclass;
  if (!is_multiclass) decide_scores();
  cells_ = add_counts("cells", {spec().classes * (is_multiclass ? spec().classes : 4)});
}

void ConfusionCounts::count_directly(const LabelBatch& batch, Scores reading) {
  const int64_t values = spec().values();
  int64_t* const counts = state(cells_.at(reading)).mutable_data_ptr<int64_t>();
  for_each_label(spec(), batch, reading, [=](int64_t label, int64_t truth, int64_t predicted) {
    ++counts[4 * label + truth * values + predicted];
  });
}

at::Tensor ConfusionCounts::count_by_operators(const LabelBatch& batch, Scores reading) {
  const FlatLabels flat = flat_labels(spec(), batch, reading);
  at::Tensor index = flat.truth.mul(spec().values()).add(flat.predicted);
  if (flat.label.defined()) index = index.add(flat.label.mul(4));
  at::Tensor& cells = state(cells_.at(reading));
  cells = cells.add(added_at(index, flat.weight, cells.numel()));
  return flat.out_of_range;
}

at::Tensor ConfusionCounts::matrices() const {
  const at::Tensor cells = decided(cells_);
  if (spec().task == Task::multilabel) return cells.view({-1, 2, 2});
  return cells.view({spec().values(), spec().values()});
}

ConfusionMatrix::ConfusionMatrix(const ConfusionMatrixOptions& options)
    : ConfusionCounts(label_spec("ConfusionMatrix", options)), normalize_(options.normalize) {}

at::Tensor ConfusionMatrix::compute() const {
  throw_if_out_of_range();
  if (normalize_ == Normalize::none) return matrices().clone();
  const at::Tensor cells = matrices().to(at::kDouble);
  at::Tensor sum;
  switch (normalize_) {
    case Normalize::truth: sum = cells.sum(-1, /*keepdim=*/true); break;
    case Normalize::pred: sum = cells.sum(-2, /*keepdim=*/true); break;
    default: sum = cells.sum(at::IntArrayRef({-2, -1}), /*keepdim=*/true); break;
  }
  return cells.div(sum.clamp_min(1)).to(at::kFloat);
}

JaccardIndex::JaccardIndex(const JaccardIndexOptions& options)
    : ConfusionCounts(label_spec("JaccardIndex", options)),
      average_(options.average),
      zero_division_(options.zero_division) {}

at::Tensor JaccardIndex::compute() const {
  const PlainOps plain;
  const at::Tensor cells = matrices().to(at::kDouble);
  at::Tensor value;
  if (spec().task == Task::multiclass) {
    const at::Tensor both = cells.diagonal();
    const at::Tensor truth = cells.sum(1);
    const at::Tensor either = cells.sum(0) + truth - both;
    value = averaged(both, either, truth, either);
  } else {
    const at::Tensor each = cells.view({-1, 2, 2});
    const auto cell = [&](int64_t truth, int64_t predicted) { return each.select(1, truth).select(1, predicted); };
    const at::Tensor both = cell(1, 1);
    const at::Tensor either = both + cell(0, 1) + cell(1, 0);
    value = spec().task == Task::binary ? quotient(both, either, zero_division_).squeeze(0)
                                        : averaged(both, either, both + cell(1, 0), either + cell(0, 0));
  }
  return unless_out_of_range(value);
}

// Averages the scores of classes or labels, of which `both` and `either` count the intersection and the union. The
// macro average leaves out classes whose `counted` is 0.
at::Tensor JaccardIndex::averaged(const at::Tensor& both, const at::Tensor& either, const at::Tensor& truth,
                                  const at::Tensor& counted) const {
  const auto ignored = spec().ignored_class();
  if (average_ == Average::micro) {
    at::Tensor all = either.sum();
    if (ignored) all = all - either[*ignored];
    return quotient(both.sum(), all, zero_division_);
  }
  const at::Tensor scores = quotient(both, either, zero_division_);
  if (average_ == Average::none) return scores;
  at::Tensor weights = truth;
  if (average_ == Average::macro) {
    weights = (counted > 0).to(scores.scalar_type());
    if (ignored) weights[*ignored].fill_(0);
  }
  return (weights * scores / weights.sum()).sum();
}

}  // namespace levin::metrics
