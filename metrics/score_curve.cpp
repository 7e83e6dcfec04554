#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/trapezoid.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/metrics/classification.h"
#include "levin/metrics/label_loops.h"
#include "levin/metrics/score_loops.h"

namespace levin::metrics {

namespace {

LabelSpec curve_spec(const std::string& name, const CurveOptions& options) {
  LabelSpec spec = label_spec(name, options);
  spec.needs_scores = true;
  if (options.task == Task::multiclass && options.average == Average::micro) {
    throw ConfigError(name + ".average: must be macro, weighted or none for the task multiclass, got micro.");
  }
  return spec;
}

// True and false positives at falling thresholds. Between two neighbours at most one of them changes, or both change at
// one score: what lies between them is a straight line.
struct CurveCounts {
  std::vector<double> tp = {}, fp = {};
  bool has_nan = false;            // then the other members mean nothing
  bool no_label_but_zero = false;  // among the labels that count
};

// How many of the falling `levels` are above `score`. Without a branch on the data, which could not be predicted.
size_t levels_above(const std::vector<float>& levels, float score) {
  if (levels.empty()) return 0;
  const float* base = levels.data();
  for (size_t left = levels.size(); left > 1;) {
    const size_t half = left / 2;
    base += base[half - 1] > score ? half : 0;
    left -= half;
  }
  return static_cast<size_t>(base - levels.data()) + (*base > score ? 1 : 0);
}

// Counts `count` scores with their labels; a label below 0 does not count, `positive` marks a positive. The positive
// scores are sorted, and each other score is looked up among them: fast if a class is one of many.
CurveCounts count_curve(const float* scores, const int32_t* labels, int64_t count, int32_t positive) {
  CurveCounts counts;
  std::vector<float> levels;
  bool only_zeros = true;
  for (int64_t i = 0; i < count; ++i) {
    counts.has_nan = counts.has_nan || scores[i] != scores[i];
    only_zeros = only_zeros && labels[i] <= 0;
    if (labels[i] == positive) levels.push_back(scores[i]);
  }
  if (counts.has_nan) return counts;
  counts.no_label_but_zero = only_zeros;
  std::sort(levels.begin(), levels.end(), std::greater<>());
  std::vector<int64_t> positives;  // at each level
  size_t different = 0;
  for (size_t i = 0; i < levels.size(); ++i) {
    if (i == 0 || levels[i] != levels[different - 1]) {
      levels[different++] = levels[i];
      positives.push_back(0);
    }
    ++positives.back();
  }
  levels.resize(different);
  std::vector<int64_t> above(different + 1, 0), level(different + 1, 0);  // negatives between two levels, and at one
  for (int64_t i = 0; i < count; ++i) {
    if (labels[i] < 0 || labels[i] == positive) continue;
    const size_t k = levels_above(levels, scores[i]);
    ++(k < different && levels[k] == scores[i] ? level : above)[k];
  }
  int64_t tp = 0, fp = 0;
  const auto corner = [&] {
    counts.tp.push_back(static_cast<double>(tp));
    counts.fp.push_back(static_cast<double>(fp));
  };
  for (size_t k = 0; k <= different; ++k) {
    fp += above[k];
    if (above[k] > 0) corner();
    if (k == different) break;
    tp += positives[k];
    fp += level[k];
    corner();
  }
  return counts;
}

// The type of labels in the rows of a state: 1 byte if that is enough.
at::ScalarType row_type(const LabelSpec& spec) {
  return spec.values() <= 127 ? at::kChar : at::kInt;
}

// Scores and labels as rows, (M, C) and (M), of multilabel (M, L) both.
struct Rows {
  Rows(const LabelSpec& spec, const LabelBatch& batch)
      : scores(score_rows(batch.preds)),
        target(spec.task == Task::multiclass ? batch.target.reshape(-1) : score_rows(batch.target)) {
    if (!batch.on_cpu() || spec.ignore_index) counted = counted_labels(spec, target);
  }
  at::Tensor scores;
  at::Tensor target;
  Counted counted;  // undefined if all count
};

// Of many rows, some at a time: what is between is in double precision.
at::Tensor odds_of_rows(const LabelSpec& spec, const at::Tensor& logits) {
  const int64_t rows = std::max<int64_t>(1, (1 << 20) / logits.size(1));
  if (logits.size(0) <= rows) return log_odds(spec, logits);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : logits.split(rows)) parts.push_back(log_odds(spec, part));
  return at::cat(parts);
}

// The dimension of thresholds is the last; the recall is 0 before the first.
at::Tensor sum_of_steps(const at::Tensor& precision, const at::Tensor& recall) {
  return precision.mul(at::diff(at::constant_pad_nd(recall, {1, 0}))).sum(-1);
}

}  // namespace

ScoreCurve::ScoreCurve(const std::string& name, const CurveOptions& options)
    : ClassificationMetric(curve_spec(name, options)), average_(options.average) {
  if (options.thresholds) {
    thresholds_ = at::linspace(0, 1, *options.thresholds, at::kFloat);
    odds_thresholds_ = at::logit(thresholds_.to(at::kDouble)).to(at::kFloat);
    decide_scores();
    histogram_ = add_counts("histogram", {spec().classes * 2 * (*options.thresholds + 1)});
  } else {
    if (ranks_by_odds()) decide_scores();
    scores_ = add_state("scores", StateReduce::cat);
    labels_ = add_state("labels", StateReduce::cat);
  }
}

void ScoreCurve::update(const at::Tensor& preds, const at::Tensor& target) {
  if (thresholds_.defined()) return ClassificationMetric::update(preds, target);
  const LabelBatch batch = label_batch(spec(), preds, target);
  begin_update(target.device());
  keep_scores(batch);
}

// A sigmoid does not change the order of scores. A softmax may, between samples; it waits for compute(), when it is
// known whether scores are logits.
bool ScoreCurve::ranks_by_odds() const {
  return spec().task == Task::multiclass;
}

void ScoreCurve::keep_scores(const LabelBatch& batch) {
  const Rows rows(spec(), batch);
  at::Tensor labels = rows.target.to(row_type(spec()));
  if (rows.counted.mask.defined()) labels = labels.masked_fill(rows.counted.mask.bitwise_not(), -1);
  append_own(labels_, labels);
  if (batch.direct && !spec().ignore_index && rows.scores.is_contiguous() && ranks_by_odds()) {
    const at::Tensor scores = at::empty_like(rows.scores);
    const float* given = rows.scores.const_data_ptr<float>();
    const bool looks_odd = copy_and_look(given, scores.numel(), scores.mutable_data_ptr<float>());  // or is NaN
    append_own(scores_, scores);
    if (!looks_odd) return;
  } else {
    append(scores_, rows.scores);
  }
  if (ranks_by_odds()) static_cast<void>(readings(batch));
  if (!batch.on_cpu()) add_out_of_range(rows.counted.out_of_range);
}

void ScoreCurve::count_directly(const LabelBatch& batch, Scores reading) {
  const Rows rows(spec(), batch);
  const bool by_odds = reading == Scores::logits;
  const at::Tensor scores = (by_odds ? log_odds(spec(), rows.scores) : rows.scores).contiguous();
  const at::Tensor target = rows.target.contiguous();
  const int64_t bins = thresholds_.numel() + 1;
  const ThresholdsReached evenly(thresholds_.const_data_ptr<float>(), bins - 1);
  const float* odds = odds_thresholds_.const_data_ptr<float>();
  const auto reached = [&](float score) -> int64_t {
    if (!by_odds) return evenly(score);
    return std::isnan(score) ? 0 : std::upper_bound(odds, odds + bins - 1, score) - odds;
  };
  const int64_t classes = spec().classes;
  const bool is_multiclass = spec().task == Task::multiclass;
  int64_t* const histogram = state(histogram_.at(reading)).mutable_data_ptr<int64_t>();
  const float* score = scores.const_data_ptr<float>();
  const int64_t* label = target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < scores.size(0); ++i, score += classes, label += is_multiclass ? 1 : classes) {
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t truth = label[is_multiclass ? 0 : c];
      if (truth == spec().ignored()) continue;
      const int64_t is_positive = truth == (is_multiclass ? c : 1) ? 1 : 0;
      ++histogram[(2 * c + is_positive) * bins + reached(score[c])];
    }
  }
}

at::Tensor ScoreCurve::count_by_operators(const LabelBatch& batch, Scores reading) {
  const Rows rows(spec(), batch);
  const bool by_odds = reading == Scores::logits;
  const auto device = batch.target.device();
  const int64_t bins = thresholds_.numel() + 1;
  const auto type = rows.scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor scores = (by_odds ? log_odds(spec(), rows.scores) : rows.scores.clamp(0, 1)).to(type).contiguous();
  const at::Tensor thresholds = (by_odds ? odds_thresholds_ : thresholds_).to(device, type);
  const at::Tensor reached =
      at::bucketize(scores, thresholds, /*out_int32=*/false, true).masked_fill(scores.ne(scores), 0);
  const at::Tensor number = at::arange(spec().classes, rows.target.options());
  const bool is_multiclass = spec().task == Task::multiclass;
  const at::Tensor positive = is_multiclass ? rows.target.unsqueeze(1).eq(number) : rows.target.eq(1);
  const at::Tensor index = number.mul(2).add(positive).mul(bins).add(reached);
  at::Tensor weight = rows.counted.mask.defined() ? rows.counted.mask.to(at::kLong) : at::ones_like(rows.target);
  if (is_multiclass) weight = weight.unsqueeze(1).expand(index.sizes());
  at::Tensor& histogram = state(histogram_.at(reading));
  histogram = histogram.add(added_at(index.reshape(-1), weight.reshape(-1), histogram.numel()));
  return rows.counted.out_of_range;
}

at::Tensor ScoreCurve::compute() const {
  return unless_out_of_range(thresholds_.defined() ? compute_binned() : compute_exact()).to(at::kFloat);
}

at::Tensor ScoreCurve::compute_binned() const {
  const int64_t bins = thresholds_.numel() + 1;
  at::Tensor histogram = decided(histogram_).view({spec().classes, 2, bins}).to(at::kDouble);
  if (spec().task == Task::multilabel && average_ == Average::micro) histogram = histogram.sum(0, /*keepdim=*/true);
  // At falling thresholds: a score that reaches k thresholds is positive at the lowest k.
  const at::Tensor reached = histogram.flip(-1).cumsum(-1);
  const at::Tensor at_thresholds = reached.slice(-1, 0, bins - 1);
  const at::Tensor all = reached.slice(-1, bins - 1);
  const Points points{at_thresholds.select(1, 1), at_thresholds.select(1, 0), all.select(1, 1), all.select(1, 0)};
  const at::Tensor has_samples = points.positives.add(points.negatives).gt(0).squeeze(1);
  const at::Tensor areas =
      binned_area(points).masked_fill(has_samples.bitwise_not(), std::numeric_limits<double>::quiet_NaN());
  return areas.numel() == 1 ? areas.squeeze(0) : averaged(areas, points.positives.squeeze(1));
}

at::Tensor ScoreCurve::compute_exact() const {
  at::Tensor scores = rows(scores_);
  at::Tensor labels = rows(labels_);
  const bool is_multiclass = spec().task == Task::multiclass;
  if (scores.numel() == 0) {
    scores = at::zeros({0, spec().classes});
    labels = is_multiclass ? at::zeros({0}) : scores;
  } else if (ranks_by_odds() && are_logits().item<bool>()) {
    scores = odds_of_rows(spec(), scores);
  }
  if (spec().task == Task::binary || (!is_multiclass && average_ == Average::micro)) {
    return areas_of(scores.reshape({1, -1}), labels.reshape({1, -1}))[0];
  }
  scores = scores.t().contiguous();
  if (!is_multiclass) labels = labels.t().contiguous();
  const at::Tensor areas = areas_of(scores, labels);
  if (average_ != Average::weighted) return averaged(areas, {});
  std::vector<at::Tensor> positives;
  for (int64_t c = 0; c < spec().classes; ++c)
    positives.push_back((is_multiclass ? labels.eq(c) : labels[c].eq(1)).sum());
  return averaged(areas, at::stack(positives));
}

// Of scores (classes, M) with labels (M) of multiclass or (classes, M).
at::Tensor ScoreCurve::areas_of(const at::Tensor& scores, const at::Tensor& labels) const {
  const int64_t classes = scores.size(0);
  const bool is_multiclass = spec().task == Task::multiclass;
  std::vector<CurveCounts> counts(static_cast<size_t>(classes), CurveCounts{.has_nan = true});
  if (scores.is_cpu() && scores.scalar_type() == at::kFloat) {
    const at::Tensor rows = scores.contiguous();
    const at::Tensor own = labels.to(at::kInt).contiguous();
    const int64_t count = rows.size(1);
    at::parallel_for(0, classes, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, count)),
                     [&](int64_t c, int64_t end) {
                       for (; c < end; ++c) {
                         counts[static_cast<size_t>(c)] =
                             count_curve(rows.const_data_ptr<float>() + c * count,
                                         own.const_data_ptr<int32_t>() + (is_multiclass ? 0 : c * count), count,
                                         is_multiclass ? static_cast<int32_t>(c) : 1);
                       }
                     });
  }
  std::vector<at::Tensor> areas;
  for (int64_t c = 0; c < classes; ++c) {
    const CurveCounts& own = counts[static_cast<size_t>(c)];
    if (own.has_nan) {
      areas.push_back(area_of(scores[c], is_multiclass ? labels : labels[c], is_multiclass ? c : 1));
    } else if (own.tp.empty()) {
      areas.push_back(at::full({}, std::numeric_limits<double>::quiet_NaN(), at::kDouble));
    } else {
      const at::Tensor tp = at::tensor(own.tp, at::kDouble), fp = at::tensor(own.fp, at::kDouble);
      areas.push_back(exact_area({tp, fp, tp.select(0, -1), fp.select(0, -1), own.no_label_but_zero}));
    }
  }
  return at::stack(areas);
}

at::Tensor ScoreCurve::area_of(const at::Tensor& scores, const at::Tensor& labels, int64_t positive) const {
  const at::Tensor kept = labels.ge(0);
  const at::Tensor mine = labels.masked_select(kept);
  if (mine.numel() == 0)
    return at::full({}, std::numeric_limits<double>::quiet_NaN(), scores.options().dtype(at::kDouble));
  const auto [sorted, order] = scores.masked_select(kept).sort(0, /*descending=*/true);
  const at::Tensor is_positive = mine.index_select(0, order).eq(positive);
  at::Tensor is_last = at::full({sorted.size(0)}, true, sorted.options().dtype(at::kBool));  // of equal scores
  if (sorted.size(0) > 1) is_last.slice(0, 0, -1).copy_(sorted.slice(0, 1).ne(sorted.slice(0, 0, -1)));
  const at::Tensor tp = is_positive.cumsum(0, at::kDouble).masked_select(is_last);
  const at::Tensor fp = is_positive.bitwise_not().cumsum(0, at::kDouble).masked_select(is_last);
  return exact_area({tp, fp, tp.select(0, -1), fp.select(0, -1), !mine.ne(0).any().item<bool>()});
}

at::Tensor ScoreCurve::averaged(const at::Tensor& areas, const at::Tensor& positives) const {
  if (average_ == Average::none) return areas;
  at::Tensor valid = areas.isnan().bitwise_not();
  if (const auto ignored = spec().ignored_class()) valid[*ignored].fill_(false);
  if (average_ == Average::macro) return at::nan_to_num(areas, 0.0).mul(valid).sum().div(valid.sum());
  const at::Tensor weights = positives.to(at::kDouble).mul(valid);
  const at::Tensor mean = at::nan_to_num(areas, 0.0).mul(weights).sum().div(weights.sum().clamp_min(1));
  return mean.masked_fill(valid.any().bitwise_not(), std::numeric_limits<double>::quiet_NaN());
}

// Through all points, of one class, the curve begins in (0, 0). torchmetrics: at fixed thresholds, of all classes, it
// begins at the highest one.
at::Tensor AUROC::exact_area(const Points& points) const {
  const int64_t added = points.tp.dim() == 1 ? 1 : 0;
  const at::Tensor tp = at::constant_pad_nd(points.tp, {added, 0});
  const at::Tensor fp = at::constant_pad_nd(points.fp, {added, 0});
  return at::trapezoid(tp.div(points.positives.clamp_min(1)), fp.div(points.negatives.clamp_min(1)));
}

at::Tensor AveragePrecision::exact_area(const Points& points) const {
  at::Tensor recall = points.tp.div(points.positives);
  // torchmetrics: if no label but 0 was seen, the recall is 1 for every class.
  if (points.no_label_but_zero) recall = at::ones_like(recall);
  return sum_of_steps(points.tp.div(points.tp.add(points.fp)), recall);
}

at::Tensor AveragePrecision::binned_area(const Points& points) const {
  return sum_of_steps(at::nan_to_num(points.tp.div(points.tp.add(points.fp)), 0.0),
                      at::nan_to_num(points.tp.div(points.positives), 0.0));
}

}  // namespace levin::metrics
