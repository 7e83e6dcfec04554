#include "levin/metrics/confusion_counts.h"

#include "levin/metrics/label_loops.h"
#include "levin/metrics/label_ops.h"

namespace levin::metrics {

int64_t confusion_cells(const LabelSpec& spec) {
  return spec.classes * (spec.task == Task::multiclass ? spec.classes : 4);
}

at::Tensor add_confusion(const LabelSpec& spec, const LabelBatch& batch, Scores reading, at::Tensor& cells) {
  const int64_t values = spec.values();
  if (batch.direct) {
    int64_t* const counts = cells.mutable_data_ptr<int64_t>();
    for_each_label(spec, batch, reading, [=](int64_t label, int64_t truth, int64_t predicted) {
      ++counts[4 * label + truth * values + predicted];
    });
    return {};
  }
  const FlatLabels flat = flat_labels(spec, batch, reading);
  at::Tensor index = flat.truth.mul(values).add(flat.predicted);
  if (flat.label.defined()) index = index.add(flat.label.mul(4));
  cells = cells.add(added_at(index, flat.weight, confusion_cells(spec)));
  return batch.on_cpu() ? at::Tensor() : flat.out_of_range;
}

}  // namespace levin::metrics
