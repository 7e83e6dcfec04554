#include "levin/metrics/classification.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "levin/core/options/error.h"
#include "levin/metrics/label_loops.h"

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

LabelSpec stat_spec(const std::string& name, const ClassificationOptions& options, bool takes_beta) {
  const LabelSpec spec = label_spec(name, options);
  if (options.top_k > 1 && options.task != Task::multiclass) {
    throw ConfigError(name + ".top_k: is an option of the task multiclass only, got " + std::to_string(options.top_k) +
                      " for the task " + enum_name(options.task) + ".");
  }
  if (options.top_k > spec.classes) {
    throw ConfigError(name + ".top_k: must be <= num_classes, which is " + std::to_string(spec.classes) + ", got " +
                      std::to_string(options.top_k) + ".");
  }
  if (!takes_beta && options.beta != 1.0) {
    throw ConfigError(name + ".beta: is an option of FBetaScore only, got " + number_text(options.beta) + ".");
  }
  return spec;
}

at::Tensor safe_ratio(const at::Tensor& numerator, const at::Tensor& denominator) {
  return at::where(denominator.ne(0), numerator.div(denominator), at::zeros_like(denominator));
}

}  // namespace

ClassificationMetric::ClassificationMetric(LabelSpec spec)
    : spec_(std::move(spec)), out_of_range_(add_state("out_of_range", StateReduce::sum, at::zeros({}, at::kLong))) {}

void ClassificationMetric::update(const at::Tensor& preds, const at::Tensor& target) {
  const LabelBatch batch = label_batch(spec_, preds, target);
  begin_update(target.device());
  at::Tensor out_of_range;
  for (const Scores reading : readings(batch)) {
    if (batch.direct) {
      count_directly(batch, reading);
    } else {
      out_of_range = count_by_operators(batch, reading);
    }
  }
  if (!batch.on_cpu()) add_out_of_range(out_of_range);
}

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
  if (batch.has_scores) state(has_logits_) = at::maximum(state(has_logits_), has_logits(spec_, batch).to(at::kLong));
  if (batch.on_cpu() && state(has_logits_).item<int64_t>() != 0) return {Scores::logits};
  return {Scores::probabilities, Scores::logits};
}

at::Tensor ClassificationMetric::decided(const ScoreCounts& counts) const {
  if (!is_open_) return state(counts.of_probabilities);
  return at::where(are_logits(), state(counts.of_logits), state(counts.of_probabilities));
}

at::Tensor ClassificationMetric::are_logits() const {
  if (!is_open_) return at::full({}, spec_.scores == Scores::logits, at::kBool);
  return state(has_logits_).ne(0);
}

StatScores::StatScores(const std::string& name, const ClassificationOptions& options, bool takes_beta)
    : ClassificationMetric(stat_spec(name, options, takes_beta)),
      options_(options),
      is_pooled_(options.task == Task::binary || options.average == Average::micro) {
  if (options.task != Task::multiclass) decide_scores();
  const int64_t size = is_pooled_ ? 1 : spec().classes;
  tp_ = add_counts("tp", {size});
  fp_ = add_counts("fp", {size});
  tn_ = add_counts("tn", {size});
  fn_ = add_counts("fn", {size});
}

void StatScores::count_directly(const LabelBatch& batch, Scores reading) {
  int64_t *const tp = data(tp_.at(reading)), *const fp = data(fp_.at(reading)), *const tn = data(tn_.at(reading)),
                 *const fn = data(fn_.at(reading));
  if (spec().task != Task::multiclass) {
    const bool pooled = is_pooled_;
    for_each_label(spec(), batch, reading, [=](int64_t label, int64_t truth, int64_t predicted) {
      int64_t* const counts = truth == 1 ? (predicted == 1 ? tp : fn) : (predicted == 1 ? fp : tn);
      ++counts[pooled ? 0 : label];
    });
    return;
  }
  int64_t right = 0;
  int64_t all = 0;
  if (is_pooled_) {
    for_each_label(spec(), batch, reading, [&](int64_t, int64_t truth, int64_t predicted) {
      right += truth == predicted ? 1 : 0;
      ++all;
    });
    tp[0] += right;
    fp[0] += all - right;
    fn[0] += all - right;
    tn[0] += spec().classes * all - right - 2 * (all - right);
    return;
  }
  all = tp[0] + fp[0] + tn[0] + fn[0];  // the same for every class
  for_each_label(spec(), batch, reading, [&](int64_t, int64_t truth, int64_t predicted) {
    ++all;
    if (truth == predicted) {
      ++tp[truth];
    } else {
      ++fn[truth];
      ++fp[predicted];
    }
  });
  for (int64_t c = 0; c < spec().classes; ++c) tn[c] = all - tp[c] - fp[c] - fn[c];
}

at::Tensor StatScores::count_by_operators(const LabelBatch& batch, Scores reading) {
  const FlatLabels flat = flat_labels(spec(), batch, reading);
  const int64_t classes = spec().classes;
  at::Tensor tp, fp, tn, fn;
  if (spec().task == Task::multiclass) {
    const at::Tensor right = flat.weight.mul(flat.truth.eq(flat.predicted));
    const at::Tensor wrong = flat.weight.sub(right);
    const auto per_class = [&](const at::Tensor& index, const at::Tensor& weight) {
      return is_pooled_ ? weight.sum(0, /*keepdim=*/true) : added_at(index, weight, classes);
    };
    tp = per_class(flat.truth, right);
    fp = per_class(flat.predicted, wrong);
    fn = per_class(flat.truth, wrong);
    tn = flat.weight.sum().mul(is_pooled_ ? classes : 1).sub(tp).sub(fp).sub(fn);
  } else {
    const at::Tensor cell = flat.truth.mul(2).add(flat.predicted);
    const int64_t labels = is_pooled_ ? 1 : classes;
    const at::Tensor index = is_pooled_ ? cell : cell.add(flat.label.mul(4));
    const at::Tensor cells = added_at(index, flat.weight, labels * 4).view({labels, 4});
    tn = cells.select(1, 0);
    fp = cells.select(1, 1);
    fn = cells.select(1, 2);
    tp = cells.select(1, 3);
  }
  const auto add = [&](const ScoreCounts& counts, const at::Tensor& count) {
    state(counts.at(reading)) = state(counts.at(reading)).add(count);
  };
  add(tp_, tp);
  add(fp_, fp);
  add(tn_, tn);
  add(fn_, fn);
  return flat.out_of_range;
}

StatScores::Counts StatScores::counts() const {
  const auto value = [this](const ScoreCounts& of_scores) {
    const at::Tensor counts = decided(of_scores).to(at::kDouble);
    return is_pooled_ ? counts.squeeze(0) : counts;
  };
  return {value(tp_), value(fp_), value(tn_), value(fn_)};
}

at::Tensor StatScores::averaged(const at::Tensor& numerator, const at::Tensor& denominator, const Counts& counts,
                                Absent absent) const {
  at::Tensor score = safe_ratio(numerator, denominator);
  if (!is_pooled_ && options_.average != Average::none) {
    at::Tensor weights = counts.tp.add(counts.fn);
    if (options_.average == Average::macro) {
      at::Tensor seen = absent == Absent::unseen ? weights.add(counts.fp) : weights;
      if (spec().task == Task::multilabel) seen = weights.add(counts.fp).add(counts.tn);  // of all samples
      weights = seen.ne(0).to(score.scalar_type());
      if (const auto ignored = spec().ignored_class()) weights[*ignored].fill_(0);
    }
    score = safe_ratio(weights.mul(score).sum(), weights.sum());
  }
  return unless_out_of_range(score.to(at::kFloat));
}

at::Tensor Accuracy::compute() const {
  const Counts c = counts();
  if (spec().task == Task::multiclass) return averaged(c.tp, c.tp.add(c.fn), c, absent_by_top_k());
  const at::Tensor correct = c.tp.add(c.tn);
  return averaged(correct, correct.add(c.fp).add(c.fn), c, absent_by_top_k());
}

at::Tensor Precision::compute() const {
  const Counts c = counts();
  return averaged(c.tp, c.tp.add(c.fp), c, absent_by_top_k());
}

at::Tensor Recall::compute() const {
  const Counts c = counts();
  return averaged(c.tp, c.tp.add(c.fn), c, absent_by_top_k());
}

at::Tensor Specificity::compute() const {
  const Counts c = counts();
  return averaged(c.tn, c.tn.add(c.fp), c, Absent::unseen);
}

at::Tensor FBetaScore::compute() const {
  const Counts c = counts();
  const double square = options().beta * options().beta;
  const at::Tensor correct = c.tp.mul(1 + square);
  return averaged(correct, correct.add(c.fn.mul(square)).add(c.fp), c, Absent::unseen);
}

}  // namespace levin::metrics
