// The counts of ConfusionMatrix and JaccardIndex: how often each label was predicted for each true one.
#pragma once

#include <string>

#include "levin/metrics/label_batch.h"

namespace levin::metrics {

/// Of a metric whose options have task, num_classes, num_labels, ignore_index and threshold.
template <class Options>
[[nodiscard]] LabelSpec confusion_spec(const std::string& metric, const Options& options) {
  LabelSpec spec = label_spec(metric, options.task, options.num_classes, options.num_labels, options.ignore_index);
  spec.threshold = options.threshold;
  spec.scores = options.scores;
  return spec;
}

/// C * C for multiclass, else 4 for each label; the predicted one varies fastest.
[[nodiscard]] int64_t confusion_cells(const LabelSpec& spec);

/// Adds a batch, whose scores are read in one way, to the flat int64 cells, on its device. Returns how many labels were
/// out of range, a scalar on the device; undefined on the CPU, where label_batch has checked them.
[[nodiscard]] at::Tensor add_confusion(const LabelSpec& spec, const LabelBatch& batch, Scores reading,
                                       at::Tensor& cells);

}  // namespace levin::metrics
