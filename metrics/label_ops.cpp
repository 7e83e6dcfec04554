#include "levin/metrics/label_ops.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "levin/metrics/label_loops.h"

namespace levin::metrics {

namespace {

// The class that is predicted for each position, (N, S): the target's if it is among the k highest scores.
at::Tensor predicted_classes(const LabelSpec& spec, const at::Tensor& scores, const at::Tensor& truth) {
  const at::Tensor highest = at::argmax(scores, 1);
  if (spec.top_k == 1) return highest;
  const at::Tensor score = scores.gather(1, truth.unsqueeze(1));
  const at::Tensor is_nan = scores.ne(scores);
  const at::Tensor score_is_nan = score.ne(score);
  const at::Tensor index = at::arange(spec.classes, truth.options()).view({1, spec.classes, 1});
  const at::Tensor higher = scores.gt(score).bitwise_or(is_nan.bitwise_and(score_is_nan.bitwise_not()));
  const at::Tensor as_high = scores.eq(score).bitwise_or(is_nan.bitwise_and(score_is_nan));
  const at::Tensor ahead = higher.bitwise_or(as_high.bitwise_and(index.lt(truth.unsqueeze(1)))).sum(1);
  return at::where(ahead.lt(spec.top_k), truth, highest);
}

}  // namespace

Counted counted_labels(const LabelSpec& spec, const at::Tensor& target) {
  const at::Tensor in_range = target.ge(0).bitwise_and(target.lt(spec.values()));
  if (!spec.ignore_index) return {in_range, in_range.bitwise_not().sum()};
  const at::Tensor kept = target.ne(*spec.ignore_index);
  return {in_range.bitwise_and(kept), in_range.bitwise_not().bitwise_and(kept).sum()};
}

at::Tensor normalized(const LabelSpec& spec, const at::Tensor& logits) {
  return spec.task == Task::multiclass ? at::softmax(logits, 1) : at::sigmoid(logits);
}

// Of multiclass x - log(sum of exp of the others): the highest is left out of the sum for the highest, since a
// difference would lose the small ones.
at::Tensor log_odds(const LabelSpec& spec, const at::Tensor& logits) {
  if (spec.task != Task::multiclass) return logits;
  const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = logits.to(logits.is_cpu() ? at::kDouble : type);
  const auto [top, index] = x.max(1, /*keepdim=*/true);
  const at::Tensor powers = x.sub(top).exp();
  const at::Tensor others = powers.sum(1, /*keepdim=*/true).sub(powers).log().add(top);
  const at::Tensor rest = x.scatter(1, index, -std::numeric_limits<double>::infinity());
  const at::Tensor second = rest.amax(1, /*keepdim=*/true).clamp_min(std::numeric_limits<float>::lowest());
  const at::Tensor of_top = rest.sub(second).exp().sum(1, /*keepdim=*/true).log().add(second);
  return x.sub(others.scatter(1, index, of_top)).to(type);
}

FlatLabels flat_labels(const LabelSpec& spec, const LabelBatch& batch, Scores reading) {
  FlatLabels flat;
  Counted counted = counted_labels(spec, batch.target);
  if (!batch.has_scores) {
    const at::Tensor in_range = batch.preds.ge(0).bitwise_and(batch.preds.lt(spec.values()));
    counted.out_of_range = counted.out_of_range.add(counted.mask.bitwise_and(in_range.bitwise_not()).sum());
    counted.mask = counted.mask.bitwise_and(in_range);
  }
  const at::Tensor truth = batch.target.masked_fill(counted.mask.bitwise_not(), 0);
  at::Tensor predicted;
  if (!batch.has_scores) {
    predicted = batch.preds.masked_fill(counted.mask.bitwise_not(), 0);
  } else if (spec.task == Task::multiclass) {
    predicted = predicted_classes(spec, batch.preds, truth);
  } else {
    const bool logits = reading == Scores::logits;
    const bool is_double = batch.preds.scalar_type() == at::kDouble;
    const at::Tensor scores = is_double ? batch.preds : batch.preds.to(at::kFloat);  // a half float's limit may be 1
    const double limit = is_double ? score_limit(spec.threshold, logits) : float_score_limit(spec.threshold, logits);
    predicted = scores.gt(limit).to(at::kLong);
  }
  if (spec.task == Task::multilabel) {
    const at::Tensor label = at::arange(spec.classes, truth.options()).view({1, spec.classes, 1});
    flat.label = label.expand(truth.sizes()).reshape(-1);
  }
  flat.truth = truth.reshape(-1);
  flat.predicted = predicted.reshape(-1);
  flat.weight = counted.mask.to(at::kLong).reshape(-1);
  flat.out_of_range = counted.out_of_range;
  return flat;
}

at::Tensor added_at(const at::Tensor& index, const at::Tensor& weight, int64_t size) {
  return at::zeros({size}, weight.options()).scatter_add(0, index, weight);
}

}  // namespace levin::metrics
