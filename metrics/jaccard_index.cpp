#include "levin/metrics/jaccard_index.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "levin/metrics/confusion_counts.h"
#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

namespace {

// nan where both are 0 is `zero_division`.
at::Tensor quotient(const at::Tensor& both, const at::Tensor& either, double zero_division) {
  return at::where(either != 0, both / either, at::full_like(either, zero_division));
}

}  // namespace

JaccardIndex::JaccardIndex(const JaccardIndexOptions& options)
    : ClassificationMetric(confusion_spec("JaccardIndex", checked(options, "JaccardIndexOptions"))),
      average_(options.average),
      zero_division_(options.zero_division),
      cells_(add_state("cells", StateReduce::sum, at::zeros({confusion_cells(spec())}, at::kLong))) {}

void JaccardIndex::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  const at::Tensor out_of_range = add_confusion(spec(), batch, state(cells_));
  if (out_of_range.defined()) add_out_of_range(out_of_range);
}

at::Tensor JaccardIndex::compute() const {
  const PlainOps plain;
  const at::Tensor cells = state(cells_).to(at::kDouble);
  at::Tensor value;
  if (spec().task == Task::multiclass) {
    const at::Tensor matrix = cells.view({spec().classes, spec().classes});
    const at::Tensor both = matrix.diagonal();
    const at::Tensor truth = matrix.sum(1);
    value = averaged(both, matrix.sum(0) + truth - both, truth);
  } else {
    const at::Tensor matrices = cells.view({-1, 2, 2});
    const auto cell = [&](int64_t truth, int64_t predicted) { return matrices.select(1, truth).select(1, predicted); };
    const at::Tensor both = cell(1, 1);
    const at::Tensor either = both + cell(0, 1) + cell(1, 0);
    value = spec().task == Task::binary ? quotient(both, either, zero_division_).squeeze(0)
                                        : averaged(both, either, both + cell(1, 0));
  }
  return unless_out_of_range(value);
}

// One value of those of classes, or labels: `both` and `either` count the intersection and the union of each.
at::Tensor JaccardIndex::averaged(const at::Tensor& both, const at::Tensor& either, const at::Tensor& truth) const {
  const auto& ignored = spec().ignore_index;
  const bool is_multiclass = spec().task == Task::multiclass;
  const bool ignores_class = is_multiclass && ignored && *ignored >= 0 && *ignored < spec().classes;
  if (average_ == Average::micro) {
    at::Tensor all = either.sum();
    if (ignores_class) all = all - either[*ignored];
    return quotient(both.sum(), all, zero_division_);
  }
  const at::Tensor scores = quotient(both, either, zero_division_);
  if (average_ == Average::none) return scores;
  at::Tensor weights = average_ == Average::weighted ? truth : at::full_like(scores, 1.0);
  if (average_ == Average::macro && ignores_class) weights[*ignored].fill_(0);
  if (average_ == Average::macro && is_multiclass)
    weights = at::where(either > 0, weights, at::full_like(weights, 0.0));
  return (weights * scores / weights.sum()).sum();
}

}  // namespace levin::metrics
