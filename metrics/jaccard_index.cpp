#include "levin/metrics/jaccard_index.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "levin/metrics/label_loops.h"
#include "levin/metrics/label_ops.h"
#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

namespace {

LabelSpec jaccard_spec(const JaccardIndexOptions& given) {
  const auto options = checked(given, "JaccardIndexOptions");
  LabelSpec spec =
      label_spec("JaccardIndex", options.task, options.num_classes, options.num_labels, options.ignore_index);
  spec.threshold = options.threshold;
  return spec;
}

int64_t jaccard_cells(const LabelSpec& spec) {
  return spec.classes * (spec.task == Task::multiclass ? spec.classes : 4);
}

// nan where both are 0 is `zero_division`.
at::Tensor quotient(const at::Tensor& both, const at::Tensor& either, double zero_division) {
  return at::where(either != 0, both / either, at::full_like(either, zero_division));
}

}  // namespace

JaccardIndex::JaccardIndex(const JaccardIndexOptions& options)
    : ClassificationMetric(jaccard_spec(options)),
      average_(options.average),
      zero_division_(options.zero_division),
      cells_(add_state("cells", StateReduce::sum, at::zeros({jaccard_cells(spec())}, at::kLong))) {}

void JaccardIndex::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
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
  state(cells_).add_(added_at(index, flat.weight, jaccard_cells(spec())));
  if (!batch.on_cpu()) add_out_of_range(flat.out_of_range);
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
