#include "levin/metrics/stat_scores.h"

#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "levin/core/error.h"
#include "levin/metrics/label_loops.h"
#include "levin/metrics/label_ops.h"

namespace levin::metrics {

namespace {

LabelSpec stat_spec(const std::string& name, const ClassificationOptions& given, bool takes_beta) {
  const ClassificationOptions options = checked(given, name);
  LabelSpec spec = label_spec(name, options.task, options.num_classes, options.num_labels, options.ignore_index);
  spec.threshold = options.threshold;
  spec.top_k = options.top_k;
  spec.scores = options.scores;
  if (options.top_k > 1 && options.task != Task::multiclass) {
    throw ConfigError(name + ".top_k: is an option of the task multiclass only, got " + std::to_string(options.top_k) +
                      " for the task " + enum_word(options.task) + ".");
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

void StatScores::update(const at::Tensor& preds, const at::Tensor& target) {
  const LabelBatch batch = label_batch(spec(), preds, target);
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

}  // namespace levin::metrics
