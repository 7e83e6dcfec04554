#include "levin/metrics/mean_iou.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/zeros.h>

#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

MeanIoU::MeanIoU(MeanIoUOptions options) : options_(checked(options, "MeanIoUOptions")) {
  spec_ = {"MeanIoU", options_.num_classes, options_.include_background, options_.input_format};
  const int64_t values = options_.per_class ? spec_.counted() : 1;
  add_state("score", StateReduce::sum, at::zeros({values}, at::kDouble));
  add_state("num_batches", StateReduce::sum, at::zeros({values}, at::kLong));
}

void MeanIoU::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const MaskCounts counts = mask_counts(spec_, preds, target);
  begin_update(preds.device());
  const at::Tensor either = counts.preds + counts.target - counts.both;
  const at::Tensor scores = counts.both.to(at::kDouble) / either.clamp_min(1);  // 0 where there is nothing
  const at::Tensor valid = either > 0;
  state(0).add_(options_.per_class ? scores.sum(0) : scores.sum());
  state(1).add_(options_.per_class ? valid.sum(0) : valid.sum());
}

at::Tensor MeanIoU::compute() const {
  const at::Tensor value = state(0) / state(1);
  return options_.per_class ? at::nan_to_num(value, -1.0) : value.squeeze(0);
}

}  // namespace levin::metrics
