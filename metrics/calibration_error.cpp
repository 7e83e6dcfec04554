#include "levin/metrics/calibration_error.h"

#include <ATen/ops/bucketize.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "levin/metrics/label_loops.h"
#include "levin/metrics/label_ops.h"

namespace levin::metrics {

namespace {

LabelSpec calibration_spec(const CalibrationErrorOptions& given) {
  const auto options = checked(given, "CalibrationError");
  LabelSpec spec = label_spec("CalibrationError", options.task, options.num_classes, 0, options.ignore_index);
  spec.needs_scores = true;
  return spec;
}

// Whether the scores whose target is not ignored are logits, for rows of `width` scores.
bool kept_rows_are_logits(const at::Tensor& scores, const at::Tensor& target, int64_t width, const LabelSpec& spec) {
  const float* row = scores.const_data_ptr<float>();
  if (!spec.ignore_index) return are_logits(row, scores.numel(), nullptr, 0);
  const int64_t* label = target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < target.numel(); ++i, row += width) {
    if (label[i] != *spec.ignore_index && are_logits(row, width, nullptr, 0)) return true;
  }
  return false;
}

}  // namespace

CalibrationError::CalibrationError(const CalibrationErrorOptions& options)
    : ClassificationMetric(calibration_spec(options)),
      options_(options),
      boundaries_(at::linspace(0, 1, options.n_bins + 1, at::kFloat)) {
  count_ = add_state("count", StateReduce::sum, at::zeros({options.n_bins + 1}, at::kLong));
  right_ = add_state("right", StateReduce::sum, at::zeros({options.n_bins + 1}, at::kLong));
  confidence_ = add_state("confidence", StateReduce::sum, at::zeros({options.n_bins + 1}, at::kDouble));
}

void CalibrationError::update(const at::Tensor& preds, const at::Tensor& target) {
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  if (batch.direct) {
    count_directly(batch);
  } else {
    count_by_operators(batch);
  }
}

void CalibrationError::count_directly(const LabelBatch& batch) {
  at::Tensor scores = score_rows(batch.preds).contiguous();
  const int64_t width = scores.size(1);
  const bool is_binary = spec().task == Task::binary;
  const bool logits = kept_rows_are_logits(scores, batch.target, width, spec());
  // Few classes: the one probability that counts is computed; of many LibTorch computes all faster.
  const bool needs_probability = logits && !is_binary && width <= 256;
  if (logits && !needs_probability) scores = normalized(spec(), scores);
  const ThresholdsReached reached(boundaries_.const_data_ptr<float>(), boundaries_.numel());
  const float* row = scores.const_data_ptr<float>();
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  auto* const counts = state(count_).mutable_data_ptr<int64_t>();
  auto* const rights = state(right_).mutable_data_ptr<int64_t>();
  auto* const sums = state(confidence_).mutable_data_ptr<double>();
  for (int64_t i = 0; i < batch.target.numel(); ++i, row += width) {
    if (target[i] == spec().ignored()) continue;
    const int64_t found = is_binary ? 0 : highest(row, width);
    const float confidence = needs_probability ? highest_probability(row, width, found) : row[found];
    const bool is_nan = std::isnan(confidence);  // in the last bin, as at::bucketize has it
    const int64_t bin = is_nan ? options_.n_bins : std::max<int64_t>(reached(confidence), 1) - 1;
    ++counts[bin];
    rights[bin] += is_binary ? target[i] : (found == target[i] ? 1 : 0);
    sums[bin] += confidence;
  }
}

void CalibrationError::count_by_operators(const LabelBatch& batch) {
  const at::Tensor target = batch.target.reshape(-1);
  const Counted counted = counted_labels(spec(), target);
  const at::Tensor scores = probabilities(spec(), score_rows(batch.preds), counted.mask.unsqueeze(1));
  at::Tensor confidence = scores.squeeze(1);
  at::Tensor right = target;
  if (spec().task == Task::multiclass) {
    const auto [value, found] = scores.max(1);
    confidence = value.to(at::kFloat);
    right = found.eq(target).to(at::kLong);
  }
  const at::Tensor boundaries = at::linspace(0, 1, options_.n_bins + 1, confidence.options());
  const at::Tensor bin =
      at::bucketize(confidence.contiguous(), boundaries, /*out_int32=*/false, true).sub(1).clamp_min(0);
  const at::Tensor weight = counted.mask.to(at::kLong);
  const int64_t bins = options_.n_bins + 1;
  state(count_) = state(count_).add(added_at(bin, weight, bins));
  state(right_) = state(right_).add(added_at(bin, right.mul(weight), bins));
  state(confidence_) =
      state(confidence_)
          .add(added_at(bin, confidence.to(at::kDouble).masked_fill(counted.mask.bitwise_not(), 0), bins));
  if (!batch.on_cpu()) add_out_of_range(counted.out_of_range);
}

at::Tensor CalibrationError::compute() const {
  const at::Tensor count = state(count_).to(at::kDouble);
  const at::Tensor some = count.clamp_min(1);
  const at::Tensor gap = state(right_).to(at::kDouble).sub(state(confidence_)).div(some).abs();
  const at::Tensor share = count.div(count.sum());
  at::Tensor error;
  switch (options_.norm) {
    case CalibrationNorm::l1: error = gap.mul(share).sum(); break;
    case CalibrationNorm::l2: error = gap.square().mul(share).sum().sqrt(); break;
    default: error = gap.max(); break;
  }
  return unless_out_of_range(error.to(at::kFloat));
}

}  // namespace levin::metrics
