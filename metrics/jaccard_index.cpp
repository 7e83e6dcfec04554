#include "levin/metrics/jaccard_index.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

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
      zero_division_(options.zero_division) {
  if (options.task != Task::multiclass) decide_scores();
  cells_ = add_counts("cells", {confusion_cells(spec())});
}

void JaccardIndex::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  at::Tensor out_of_range;
  for (const Scores reading : readings(batch)) {
    out_of_range = add_confusion(spec(), batch, reading, state(cells_.at(reading)));
  }
  if (out_of_range.defined()) add_out_of_range(out_of_range);
}

at::Tensor JaccardIndex::compute() const {
  const PlainOps plain;
  const at::Tensor cells = decided(cells_).to(at::kDouble);
  at::Tensor value;
  if (spec().task == Task::multiclass) {
    const at::Tensor matrix = cells.view({spec().classes, spec().classes});
    const at::Tensor both = matrix.diagonal();
    const at::Tensor truth = matrix.sum(1);
    const at::Tensor either = matrix.sum(0) + truth - both;
    value = averaged(both, either, truth, either);
  } else {
    const at::Tensor matrices = cells.view({-1, 2, 2});
    const auto cell = [&](int64_t truth, int64_t predicted) { return matrices.select(1, truth).select(1, predicted); };
    const at::Tensor both = cell(1, 1);
    const at::Tensor either = both + cell(0, 1) + cell(1, 0);
    value = spec().task == Task::binary ? quotient(both, either, zero_division_).squeeze(0)
                                        : averaged(both, either, both + cell(1, 0), either + cell(0, 0));
  }
  return unless_out_of_range(value);
}

// One value of those of classes, or labels: `both` and `either` count the intersection and the union of each. The macro
// average leaves out those of which `counted` is 0.
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
