#include "levin/metrics/confusion_matrix.h"

#include <ATen/ops/zeros.h>

#include "levin/metrics/label_loops.h"
#include "levin/metrics/label_ops.h"

namespace levin::metrics {

namespace {

LabelSpec matrix_spec(const ConfusionMatrixOptions& given) {
  const auto options = checked(given, "ConfusionMatrix");
  LabelSpec spec =
      label_spec("ConfusionMatrix", options.task, options.num_classes, options.num_labels, options.ignore_index);
  spec.threshold = options.threshold;
  return spec;
}

int64_t cell_count(const LabelSpec& spec) {
  return spec.classes * (spec.task == Task::multiclass ? spec.classes : 4);
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(const ConfusionMatrixOptions& options)
    : ClassificationMetric(matrix_spec(options)),
      normalize_(options.normalize),
      cells_(add_state("cells", StateReduce::sum, at::zeros({cell_count(spec())}, at::kLong))) {}

void ConfusionMatrix::update(const at::Tensor& preds, const at::Tensor& target) {
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  // torchmetrics: of the task binary alone ignored samples are left out before it looks for logits.
  const bool skips_ignored = spec().task == Task::binary;
  const int64_t values = spec().values();
  if (batch.direct) {
    int64_t* const cells = state(cells_).mutable_data_ptr<int64_t>();
    for_each_label(spec(), batch, skips_ignored, [=](int64_t label, int64_t truth, int64_t predicted) {
      ++cells[4 * label + truth * values + predicted];
    });
    return;
  }
  const FlatLabels flat = flat_labels(spec(), batch, skips_ignored);
  at::Tensor index = flat.truth.mul(values).add(flat.predicted);
  if (flat.label.defined()) index = index.add(flat.label.mul(4));
  state(cells_) = state(cells_).add(added_at(index, flat.weight, cell_count(spec())));
  if (!batch.on_cpu()) add_out_of_range(flat.out_of_range);
}

at::Tensor ConfusionMatrix::compute() const {
  throw_if_out_of_range();
  const int64_t values = spec().values();
  at::Tensor cells = state(cells_).clone();
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
