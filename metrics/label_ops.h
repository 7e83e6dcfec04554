// Labels of a batch by LibTorch's operators: on any device, in any type, and without reading a number from a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "levin/metrics/label_batch.h"

namespace levin::metrics {

/// One element for each label of a batch, int64. Those that do not count (ignored, or out of range on a device) have
/// the weight 0, and 0 in place of labels that are out of range.
struct FlatLabels {
  at::Tensor label;  // which label of multilabel; undefined otherwise
  at::Tensor truth;
  at::Tensor predicted;
  at::Tensor weight;
  at::Tensor out_of_range;  // how many labels were, as a scalar
};

/// `reading`: how scores are compared with the threshold, for binary and multilabel.
[[nodiscard]] FlatLabels flat_labels(const LabelSpec& spec, const LabelBatch& batch, Scores reading);

/// What counts of the labels in `target`: a mask of its shape, and how many labels are out of range.
struct Counted {
  at::Tensor mask;
  at::Tensor out_of_range;
};
[[nodiscard]] Counted counted_labels(const LabelSpec& spec, const at::Tensor& target);

/// The sigmoid of logits, or for multiclass their softmax over the dimension 1.
[[nodiscard]] at::Tensor normalized(const LabelSpec& spec, const at::Tensor& logits);

/// log(p / (1 - p)) of the probabilities p that logits (M, C) stand for, in their type (float for half precision). They
/// are in the order of p, and differ where p is rounded to 1 or 0.
[[nodiscard]] at::Tensor log_odds(const LabelSpec& spec, const at::Tensor& logits);

/// zeros(size) with `weight` added at `index`.
[[nodiscard]] at::Tensor added_at(const at::Tensor& index, const at::Tensor& weight, int64_t size);

}  // namespace levin::metrics
