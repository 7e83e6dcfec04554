#include <ATen/ops/bucketize.h>
#include <ATen/ops/linspace.h>

#include <algorithm>
#include <cmath>

#include "levin/metrics/classification.h"
#include "levin/metrics/label_loops.h"
#include "levin/metrics/score_loops.h"

namespace levin::metrics {

namespace {

LabelSpec calibration_spec(const CalibrationErrorOptions& options) {
  LabelSpec spec = label_spec("CalibrationError", options);
  spec.needs_scores = true;
  return spec;
}

}  // namespace

CalibrationError::CalibrationError(const CalibrationErrorOptions& options)
    : ClassificationMetric(calibration_spec(options)),
      options_(options),
      boundaries_(at::linspace(0, 1, options.n_bins + 1, at::kFloat)) {
  decide_scores();
  count_ = add_counts("count", {options.n_bins + 1});
  right_ = add_counts("right", {options.n_bins + 1});
  confidence_ = add_counts("confidence", {options.n_bins + 1}, at::kDouble);
}

void CalibrationError::count_directly(const LabelBatch& batch, Scores reading) {
  const bool is_binary = spec().task == Task::binary;
  const bool has_logits = reading == Scores::logits;
  at::Tensor scores = score_rows(batch.preds).contiguous();
  const int64_t width = scores.size(1), count = batch.target.numel();
  // Few classes: the one probability that counts is computed; of many LibTorch computes all faster.
  const bool needs_probability = has_logits && !is_binary && width <= 256;
  if (has_logits && !needs_probability) scores = normalized(spec(), scores);
  const float* row = scores.const_data_ptr<float>();
  const ThresholdsReached reached(boundaries_.const_data_ptr<float>(), boundaries_.numel());
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  auto* const counts = state(count_.at(reading)).mutable_data_ptr<int64_t>();
  auto* const correct = state(right_.at(reading)).mutable_data_ptr<int64_t>();
  auto* const sums = state(confidence_.at(reading)).mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i, row += width) {
    if (target[i] == spec().ignored()) continue;
    const int64_t found = is_binary ? 0 : highest(row, width);
    const float confidence = needs_probability ? highest_probability(row, width, found) : row[found];
    const int64_t bin =
        std::isnan(confidence) ? options_.n_bins : std::clamp<int64_t>(reached(confidence), 1, options_.n_bins) - 1;
    ++counts[bin];
    correct[bin] += is_binary ? target[i] : (found == target[i] ? 1 : 0);
    sums[bin] += std::clamp(confidence, 0.0F, 1.0F);
  }
}

at::Tensor CalibrationError::count_by_operators(const LabelBatch& batch, Scores reading) {
  const at::Tensor target = batch.target.reshape(-1);
  const Counted counted = counted_labels(spec(), target);
  const at::Tensor rows = score_rows(batch.preds);
  const at::Tensor scores = reading == Scores::logits ? normalized(spec(), rows) : rows;
  at::Tensor confidence = scores.squeeze(1);
  at::Tensor right = target;
  if (spec().task == Task::multiclass) {
    const auto [value, found] = scores.max(1);
    confidence = value.to(at::kFloat);
    right = found.eq(target).to(at::kLong);
  }
  confidence = confidence.clamp(0, 1);
  const at::Tensor boundaries = at::linspace(0, 1, options_.n_bins + 1, confidence.options());
  const at::Tensor bin = at::bucketize(confidence.contiguous(), boundaries, /*out_int32=*/false, true)
                             .clamp(1, options_.n_bins)
                             .sub(1)
                             .masked_fill(confidence.ne(confidence), options_.n_bins);
  const at::Tensor weight = counted.mask.to(at::kLong);
  const auto add = [&](const ScoreCounts& counts, const at::Tensor& values) {
    at::Tensor& sums = state(counts.at(reading));
    sums = sums.add(added_at(bin, values, options_.n_bins + 1));
  };
  add(count_, weight);
  add(right_, right.mul(weight));
  add(confidence_, confidence.to(at::kDouble).masked_fill(counted.mask.bitwise_not(), 0));
  return counted.out_of_range;
}

at::Tensor CalibrationError::compute() const {
  const at::Tensor count = decided(count_).to(at::kDouble);
  const at::Tensor some = count.clamp_min(1);
  const at::Tensor gap = decided(right_).to(at::kDouble).sub(decided(confidence_)).div(some).abs();
  const at::Tensor fraction = count.div(count.sum());
  at::Tensor error;
  switch (options_.norm) {
    case CalibrationNorm::l1: error = gap.mul(fraction).sum(); break;
    case CalibrationNorm::l2: error = gap.square().mul(fraction).sum().sqrt(); break;
    default: error = gap.max(); break;
  }
  return unless_out_of_range(error.to(at::kFloat));
}

}  // namespace levin::metrics
