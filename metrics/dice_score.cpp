#include "levin/metrics/dice_score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nanmean.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

namespace {

enum : size_t { dice_numerator, dice_denominator, dice_support };  // global
enum : size_t { dice_scores, dice_counted };                       // samplewise

// Rows of classes to a score per row, or to the scores of all classes. nan where there is nothing to score.
at::Tensor dice_of(const at::Tensor& numerator, const at::Tensor& denominator, const at::Tensor& support,
                   Average average) {
  if (average == Average::micro) return numerator.sum(-1) / denominator.sum(-1);
  const at::Tensor dice = numerator / denominator;
  if (average == Average::none) return dice;
  if (average == Average::macro) return at::nanmean(dice, at::IntArrayRef{-1});
  const at::Tensor weights = support / support.sum(-1, /*keepdim=*/true);
  const at::Tensor nothing = at::isnan(dice).all(-1);
  const at::Tensor weighted = at::nansum(dice * weights, at::IntArrayRef{-1});
  return at::where(nothing, at::full_like(weighted, std::numeric_limits<double>::quiet_NaN()), weighted);
}

}  // namespace

DiceScore::DiceScore(DiceScoreOptions options) : options_(checked(options, "DiceScoreOptions")) {
  spec_ = {"DiceScore", options_.num_classes, options_.include_background, options_.input_format};
  if (options_.aggregation_level == AggregationLevel::global) {
    for (const char* name : {"numerator", "denominator", "support"}) {
      add_state(name, StateReduce::sum, at::zeros({spec_.counted()}, at::kLong));
    }
    return;
  }
  const int64_t values = options_.average == Average::none ? spec_.counted() : 1;
  add_state("scores", StateReduce::sum, at::zeros({values}, at::kDouble));
  add_state("counted", StateReduce::sum, at::zeros({values}, at::kLong));
}

void DiceScore::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const MaskCounts counts = mask_counts(spec_, preds, target);
  begin_update(preds.device());
  const at::Tensor numerator = counts.both * 2;
  const at::Tensor denominator = counts.preds + counts.target;
  if (options_.aggregation_level == AggregationLevel::global) {
    state(dice_numerator).add_(numerator.sum(0));
    state(dice_denominator).add_(denominator.sum(0));
    state(dice_support).add_(counts.target.sum(0));
    return;
  }
  const at::Tensor scores =
      dice_of(numerator.to(at::kDouble), denominator.to(at::kDouble), counts.target.to(at::kDouble), options_.average);
  const at::Tensor counted = at::isnan(scores).logical_not();
  state(dice_scores).add_(at::nansum(scores, at::IntArrayRef{0}));
  state(dice_counted).add_(counted.sum(0));
}

at::Tensor DiceScore::compute() const {
  at::Tensor value;
  if (options_.aggregation_level == AggregationLevel::global) {
    value = dice_of(state(dice_numerator).to(at::kDouble), state(dice_denominator).to(at::kDouble),
                    state(dice_support).to(at::kDouble), options_.average);
    return value;
  }
  value = state(dice_scores) / state(dice_counted);
  return options_.average == Average::none ? value : value.squeeze(0);
}

}  // namespace levin::metrics
