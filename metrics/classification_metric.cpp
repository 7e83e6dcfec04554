#include "levin/metrics/classification_metric.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/short_number.h"

namespace levin::metrics {

namespace {

// Probabilities of bfloat16 that were computed with rounding may be this far outside [0, 1].
constexpr double kRounding = 0.01;

void check_probabilities(const LabelSpec& spec, const LabelBatch& batch) {
  if (!batch.has_scores || batch.preds.numel() == 0 || !has_logits(spec, batch).item<bool>()) return;
  at::Tensor scores = batch.preds;
  if (spec.ignore_index) scores = scores.masked_fill(ignored_scores(spec, batch), 0);
  const auto [low, high] = at::aminmax(scores);
  const double lowest = low.item().toDouble(), highest = high.item().toDouble();
  if (!(lowest < -kRounding || highest > 1 + kRounding)) return;
  throw Error(spec.metric + ": preds has the score " + short_number(highest > 1 + kRounding ? highest : lowest) +
              ", and .scores is probabilities, which are between 0 and 1. Pass probabilities, or set "
              ".scores to logits.");
}

}  // namespace

ClassificationMetric::ClassificationMetric(LabelSpec spec)
    : spec_(std::move(spec)), out_of_range_(add_state("out_of_range", StateReduce::sum, at::zeros({}, at::kLong))) {}

void ClassificationMetric::add_out_of_range(const at::Tensor& count) {
  state(out_of_range_) = state(out_of_range_).add(count);
}

at::Tensor ClassificationMetric::unless_out_of_range(const at::Tensor& value) const {
  return value.masked_fill(state(out_of_range_).gt(0), std::numeric_limits<double>::quiet_NaN());
}

void ClassificationMetric::throw_if_out_of_range() const {
  const auto count = state(out_of_range_).item<int64_t>();
  if (count == 0) return;
  throw Error(name() + ": " + count_of(count, "label") + " on " + state(out_of_range_).device().str() +
              " were out of range. Labels are 0 to " + std::to_string(spec_.values() - 1) +
              "; on the CPU the first one is named.");
}

void ClassificationMetric::decide_scores() {
  is_open_ = spec_.scores == Scores::automatic;
  if (is_open_) has_logits_ = add_decision("has_logits");
}

ClassificationMetric::ScoreCounts ClassificationMetric::add_counts(const std::string& name, at::IntArrayRef sizes,
                                                                   at::ScalarType type) {
  const size_t index = add_state(name, StateReduce::sum, at::zeros(sizes, type));
  return {index, is_open_ ? add_state(name + "_of_logits", StateReduce::sum, at::zeros(sizes, type)) : index};
}

std::vector<Scores> ClassificationMetric::readings(const LabelBatch& batch) {
  if (!is_open_) {
    if (spec_.scores == Scores::probabilities && batch.on_cpu()) check_probabilities(spec_, batch);
    return {spec_.scores == Scores::logits ? Scores::logits : Scores::probabilities};
  }
  if (batch.has_scores) note_logits(has_logits(spec_, batch));
  if (batch.on_cpu() && state(has_logits_).item<int64_t>() != 0) return {Scores::logits};
  return {Scores::probabilities, Scores::logits};
}

void ClassificationMetric::note_logits(const at::Tensor& has_logits) {
  if (is_open_) state(has_logits_) = at::maximum(state(has_logits_), has_logits.to(at::kLong));
}

at::Tensor ClassificationMetric::decided(const ScoreCounts& counts) const {
  if (!is_open_) return state(counts.of_probabilities);
  return at::where(are_logits(), state(counts.of_logits), state(counts.of_probabilities));
}

at::Tensor ClassificationMetric::are_logits() const {
  if (!is_open_) return at::full({}, spec_.scores == Scores::logits, at::kBool);
  return state(has_logits_).ne(0);
}

}  // namespace levin::metrics
