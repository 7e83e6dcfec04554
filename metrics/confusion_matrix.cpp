#include "levin/metrics/confusion_matrix.h"

#include "levin/metrics/confusion_counts.h"

namespace levin::metrics {

ConfusionMatrix::ConfusionMatrix(const ConfusionMatrixOptions& options)
    : ClassificationMetric(confusion_spec("ConfusionMatrix", checked(options, "ConfusionMatrix"))),
      normalize_(options.normalize) {
  if (options.task != Task::multiclass) decide_scores();
  cells_ = add_counts("cells", {confusion_cells(spec())});
}

void ConfusionMatrix::update(const at::Tensor& preds, const at::Tensor& target) {
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  at::Tensor out_of_range;
  for (const Scores reading : readings(batch)) {
    out_of_range = add_confusion(spec(), batch, reading, state(cells_.at(reading)));
  }
  if (out_of_range.defined()) add_out_of_range(out_of_range);
}

at::Tensor ConfusionMatrix::compute() const {
  throw_if_out_of_range();
  const int64_t values = spec().values();
  at::Tensor cells = decided(cells_).clone();
  cells = spec().task == Task::multilabel ? cells.view({-1, 2, 2}) : cells.view({values, values});
  if (normalize_ == Normalize::none) return cells;
  cells = cells.to(at::kDouble);
  at::Tensor sum;
  switch (normalize_) {
    case Normalize::truth: sum = cells.sum(-1, /*keepdim=*/true); break;
    case Normalize::pred: sum = cells.sum(-2, /*keepdim=*/true); break;
    default: sum = cells.sum(at::IntArrayRef({-2, -1}), /*keepdim=*/true); break;
  }
  return cells.div(sum.clamp_min(1)).to(at::kFloat);
}

}  // namespace levin::metrics
