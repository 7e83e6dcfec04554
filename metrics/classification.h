// Metrics of classification: accuracy, precision, recall, specificity and F-beta; confusion matrix and Jaccard index;
// AUROC and average precision; calibration error. Names, options and values follow torchmetrics.classification.
//
//   levin::metrics::F1Score f1_{{.num_classes = 10, .average = levin::metrics::Average::macro}};  // in the module
//   f1_(logits, labels);                                                                          // in validation_step
//   log("val_f1", f1_);
//
// Shapes: multiclass: scores (N, C, ...) and labels (N, ...); multilabel: both (N, L, ...); binary: both (N, ...).
// Scores are floating point, probabilities or logits; labels are integers. Where a metric does not need scores, preds
// may be labels in the shape of the target. update() throws Error naming both shapes, types or devices if they do not
// fit; constructors throw ConfigError naming the option. Every rank updates its own object (metric.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/metrics/label_batch.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

namespace detail {
inline constexpr const char* kScoresHelp =
    "probabilities or logits; auto: logits if any score of the epoch is outside [0, 1] by more than 1e-4";

/// The fields of a classification metric's options: the labels, then `own`, then ignored labels and scores.
template <class O>
FieldList task_fields(const FieldList& own) {
  FieldList threshold;
  if constexpr (requires(O o) { o.threshold; }) {
    threshold.push_back(
        field("threshold", &O::threshold, "a score above it is 1, for binary and multilabel").min(0.0).max(1.0));
  }
  return levin::fields(field("task", &O::task, "what the labels of a sample are"),
                       field("num_classes", &O::num_classes, "number of classes, for multiclass").min(0),
                       field("num_labels", &O::num_labels, "number of labels, for multilabel").min(0), threshold, own,
                       field("ignore_index", &O::ignore_index, "samples with this label are left out"),
                       field("scores", &O::scores, kScoresHelp));
}
}  // namespace detail

/// The base of classification metrics: checks a batch, decides whether scores are logits, and counts what is out of
/// range. Labels out of range are an error of update() on the CPU. Elsewhere update() would have to wait for the
/// device, so they are counted there, are left out of all other counts, and make the value NaN.
class ClassificationMetric : public TensorMetric {
 public:
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] std::string name() const override { return spec_.metric; }

 protected:
  explicit ClassificationMetric(LabelSpec spec);

  /// Counts a batch whose memory can be read by a loop on the CPU.
  virtual void count_directly(const LabelBatch& batch, Scores reading) = 0;
  /// Counts any other batch; returns how many labels were out of range, a scalar on its device.
  virtual at::Tensor count_by_operators(const LabelBatch& batch, Scores reading) = 0;

  [[nodiscard]] const LabelSpec& spec() const { return spec_; }
  /// Adds to the count of labels that were out of range: a scalar on the device.
  void add_out_of_range(const at::Tensor& count);
  /// Returns `value`, or NaN if labels were out of range.
  [[nodiscard]] at::Tensor unless_out_of_range(const at::Tensor& value) const;
  /// Throws Error if labels were out of range: for a metric whose value cannot be NaN.
  void throw_if_out_of_range() const;

  // Note [One decision for all scores]
  // Whether scores are probabilities or logits is known once all of them were seen, on all ranks: logits may lie
  // between 0 and 1 in any number of batches. Until a score is outside [0, 1], each batch is counted both ways, and
  // compute() takes the counts that are right. torchmetrics decides for each batch.

  /// The indices of a state that counts scores. They are equal if it does not matter what scores are, or if the option
  /// states it.
  struct ScoreCounts {
    size_t of_probabilities = 0;
    size_t of_logits = 0;
    [[nodiscard]] size_t at(Scores reading) const { return reading == Scores::logits ? of_logits : of_probabilities; }
  };

  /// Called first by a constructor whose metric must know what scores are. Does nothing if the option states it.
  void decide_scores();
  /// Declares a sum state of zeros with the shape `sizes`.
  ScoreCounts add_counts(const std::string& name, at::IntArrayRef sizes, at::ScalarType type = at::kLong);
  /// Returns the ways in which the scores of a batch must be counted, each at ScoreCounts::at(reading). Throws Error on
  /// the CPU for scores that contradict the option.
  [[nodiscard]] std::vector<Scores> readings(const LabelBatch& batch);
  /// Returns the counts that are right for all scores so far.
  [[nodiscard]] at::Tensor decided(const ScoreCounts& counts) const;
  /// Returns whether scores are logits, as far as is known: a bool scalar.
  [[nodiscard]] at::Tensor are_logits() const;

 private:
  LabelSpec spec_;
  size_t out_of_range_;
  bool is_open_ = false;  // it matters what scores are, and the option is auto
  size_t has_logits_ = 0;
};

// ---- metrics of true and false positives and negatives --------------------------------------------------------------

/// Options of Accuracy, Precision, Recall, Specificity, F1Score and FBetaScore.
struct ClassificationOptions {
  EnumOption<Task> task =
      Task::multiclass;     // torchmetrics has no default; here it is the task whose num_classes is always needed
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  double threshold = 0.5;   // binary and multilabel: a score above it is 1
  EnumOption<Average> average = Average::micro;
  int64_t top_k = 1;                                   // multiclass: correct if the class is among the k highest scores
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  double beta = 1.0;                                   // FBetaScore only: recall counts beta times as much as precision
  EnumOption<Scores> scores = Scores::automatic;       // binary and multilabel: what is compared with the threshold

  template <class = void>
  static auto fields() {
    using O = ClassificationOptions;
    return detail::task_fields<O>(levin::fields(
        field("average", &O::average, "how the values of classes or labels are averaged"),
        field("top_k", &O::top_k, "correct if the class is among the k highest scores, for multiclass").min(1),
        field("beta", &O::beta, "recall counts beta times as much as precision, for FBetaScore").above(0.0)));
  }
};

/// True and false positives and negatives (tp, fp, tn, fn): of each class or label, or of all together with the average
/// micro or the task binary. The base of the metrics below; its constructor throws ConfigError for options that do not
/// go together.
class StatScores : public ClassificationMetric {
 public:
  using Options = ClassificationOptions;

 protected:
  /// `takes_beta`: options.beta may differ from 1.
  StatScores(const std::string& name, const ClassificationOptions& options, bool takes_beta = false);

  /// The counts in double precision: (C), or scalars for the task binary and the average micro.
  struct Counts {
    at::Tensor tp, fp, tn, fn;
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] const ClassificationOptions& options() const { return options_; }

  /// Which classes the average macro leaves out: classes that are neither predicted nor true, or classes that are never
  /// true. It always leaves out ignore_index if it is a class, and labels of multilabel without samples.
  enum class Absent { unseen, never_true };
  /// numerator / denominator (0 if the denominator is 0) of each class, averaged, as float.
  [[nodiscard]] at::Tensor averaged(const at::Tensor& numerator, const at::Tensor& denominator, const Counts& counts,
                                    Absent absent) const;
  /// Absent::never_true with top_k > 1, as in torchmetrics.
  [[nodiscard]] Absent absent_by_top_k() const { return spec().top_k == 1 ? Absent::unseen : Absent::never_true; }

 private:
  void count_directly(const LabelBatch& batch, Scores reading) override;
  at::Tensor count_by_operators(const LabelBatch& batch, Scores reading) override;
  [[nodiscard]] int64_t* data(size_t index) { return state(index).mutable_data_ptr<int64_t>(); }

  ClassificationOptions options_;
  bool is_pooled_;  // one count for all classes or labels
  ScoreCounts tp_ = {}, fp_ = {}, tn_ = {}, fn_ = {};
};

/// Fraction of correct predictions. multiclass: of each class's samples, so that macro is the balanced accuracy;
/// binary, multilabel: of all labels. Value: a scalar, or (C) with the average none; 0 before the first sample.
class Accuracy final : public StatScores {
 public:
  explicit Accuracy(const ClassificationOptions& options) : StatScores("Accuracy", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// tp / (tp + fp): the fraction of samples predicted to be of a class that are. Value as for Accuracy.
class Precision final : public StatScores {
 public:
  explicit Precision(const ClassificationOptions& options) : StatScores("Precision", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// tp / (tp + fn): the fraction of a class's samples that are predicted to be of it. Value as for Accuracy.
class Recall final : public StatScores {
 public:
  explicit Recall(const ClassificationOptions& options) : StatScores("Recall", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// tn / (tn + fp): the fraction of the other classes' samples that are not predicted to be of a class. Value as for
/// Accuracy.
class Specificity final : public StatScores {
 public:
  explicit Specificity(const ClassificationOptions& options) : StatScores("Specificity", options) {}
  [[nodiscard]] at::Tensor compute() const override;
};

/// (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp): the weighted harmonic mean of precision and recall. Value as
/// for Accuracy.
class FBetaScore : public StatScores {
 public:
  explicit FBetaScore(const ClassificationOptions& options) : FBetaScore("FBetaScore", options, true) {}
  [[nodiscard]] at::Tensor compute() const override;

 protected:
  FBetaScore(const std::string& name, const ClassificationOptions& options, bool takes_beta)
      : StatScores(name, options, takes_beta) {}
};

/// FBetaScore with beta = 1.
class F1Score final : public FBetaScore {
 public:
  explicit F1Score(const ClassificationOptions& options) : FBetaScore("F1Score", options, false) {}
};

// ---- metrics of the confusion matrix --------------------------------------------------------------------------------

/// What counts are divided by: the samples of their true class, of their predicted class, or all; none: nothing.
enum class Normalize { none, truth, pred, all };

/// Options of ConfusionMatrix.
struct ConfusionMatrixOptions {
  EnumOption<Task> task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  double threshold = 0.5;   // binary and multilabel: a score above it is 1
  EnumOption<Normalize> normalize = Normalize::none;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  EnumOption<Scores> scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = ConfusionMatrixOptions;
    return detail::task_fields<O>(levin::fields(field("normalize", &O::normalize, "what the counts are divided by")));
  }
};

/// The base of metrics that count how often each label was predicted for each true label.
class ConfusionCounts : public ClassificationMetric {
 protected:
  explicit ConfusionCounts(LabelSpec spec);
  /// (2, 2) for binary, (C, C) for multiclass, (L, 2, 2) for multilabel: int64, the predicted label last.
  [[nodiscard]] at::Tensor matrices() const;

 private:
  void count_directly(const LabelBatch& batch, Scores reading) override;
  at::Tensor count_by_operators(const LabelBatch& batch, Scores reading) override;

  ScoreCounts cells_ = {};  // flat
};

/// How often each class was predicted for each true class. Value: rows are true classes, columns predicted classes:
/// (2, 2) for binary, (C, C) for multiclass, (L, 2, 2) for multilabel; int64, or float if normalized (0/0 is 0).
/// compute() waits for the device, and throws Error if labels were out of range there.
class ConfusionMatrix final : public ConfusionCounts {
 public:
  using Options = ConfusionMatrixOptions;
  explicit ConfusionMatrix(const ConfusionMatrixOptions& options);
  [[nodiscard]] at::Tensor compute() const override;

 private:
  Normalize normalize_;
};

/// Options of JaccardIndex.
struct JaccardIndexOptions {
  EnumOption<Task> task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  double threshold = 0.5;   // binary and multilabel: a score above it is 1
  EnumOption<Average> average = Average::macro;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  double zero_division = 0.0;                          // score for a class absent from predictions and targets
  EnumOption<Scores> scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = JaccardIndexOptions;
    return detail::task_fields<O>(
        levin::fields(field("average", &O::average, "how the values of classes or labels are averaged"),
                      field("zero_division", &O::zero_division, "score for a class absent from predictions and targets")
                          .any_number()));
  }
};

/// Intersection over union (IoU) of predicted and true labels: tp / (tp + fp + fn), over all pixels or labels of all
/// batches together; for binary, of class 1. The macro average leaves out absent classes, ignore_index if it is a
/// class, and labels of multilabel without samples. Value: a scalar, or (C) with the average none.
class JaccardIndex final : public ConfusionCounts {
 public:
  using Options = JaccardIndexOptions;
  explicit JaccardIndex(const JaccardIndexOptions& options);
  [[nodiscard]] at::Tensor compute() const override;

 private:
  [[nodiscard]] at::Tensor averaged(const at::Tensor& both, const at::Tensor& either, const at::Tensor& truth,
                                    const at::Tensor& counted) const;

  Average average_;
  double zero_division_;
};

// ---- metrics of scores ----------------------------------------------------------------------------------------------

/// l1: the mean of the bins' differences (ECE); l2: their root mean square; max: the largest (MCE).
enum class CalibrationNorm { l1, l2, max };

/// Options of CalibrationError.
struct CalibrationErrorOptions {
  EnumOption<Task> task = Task::multiclass;  // or binary
  int64_t num_classes = 0;                   // required for multiclass
  int64_t n_bins = 15;                       // bins of confidence, of equal width
  EnumOption<CalibrationNorm> norm = CalibrationNorm::l1;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  EnumOption<Scores> scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = CalibrationErrorOptions;
    return levin::fields(field("task", &O::task, "what the labels of a sample are")
                             .check([](Task task) { return task != Task::multilabel; }, "binary or multiclass"),
                         field("num_classes", &O::num_classes, "number of classes, for multiclass").min(0),
                         field("n_bins", &O::n_bins, "bins of confidence, of equal width").min(1),
                         field("norm", &O::norm, "how the differences of the bins are reduced"),
                         field("ignore_index", &O::ignore_index, "samples with this label are left out"),
                         field("scores", &O::scores, detail::kScoresHelp));
  }
};

/// How far confidence is from accuracy (Naeini et al. 2015; Guo et al. 2017). multiclass: the confidence is the highest
/// probability, correct if its class is the target's; binary: the probability of 1, correct if the target is 1. A
/// confidence of 1 belongs to the last bin (torchmetrics has a bin of its own for it, in which float32 puts all large
/// logits). Needs scores. Value: a scalar; NaN before the first sample, or 0 for the norm max.
class CalibrationError final : public ClassificationMetric {
 public:
  using Options = CalibrationErrorOptions;
  explicit CalibrationError(const CalibrationErrorOptions& options);
  [[nodiscard]] at::Tensor compute() const override;

 private:
  void count_directly(const LabelBatch& batch, Scores reading) override;
  at::Tensor count_by_operators(const LabelBatch& batch, Scores reading) override;

  CalibrationErrorOptions options_;
  at::Tensor boundaries_;  // of the bins; one more bin counts NaN
  ScoreCounts count_ = {}, right_ = {}, confidence_ = {};
};

/// Options of AUROC and AveragePrecision.
struct CurveOptions {
  EnumOption<Task> task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  // Unset: every score is kept, the value is exact, and memory grows with the samples. A number: scores are counted at
  // this many thresholds from 0 to 1, in constant memory.
  std::optional<int64_t> thresholds = std::nullopt;
  EnumOption<Average> average = Average::macro;        // micro: for multilabel only
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  EnumOption<Scores> scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = CurveOptions;
    return detail::task_fields<O>(levin::fields(
        field("thresholds", &O::thresholds, "number of thresholds at which scores are counted; unset: all are kept")
            .check([](const auto& count) { return !count || *count >= 2; }, ">= 2, or null"),
        field("average", &O::average, "how the values of classes or labels are averaged")));
  }
};

/// The base of AUROC and AveragePrecision: areas under curves over all scores, or over counts at fixed thresholds. Both
/// need scores. Value: a scalar, or (C) with the average none; NaN before the first sample.
class ScoreCurve : public ClassificationMetric {
 public:
  using Options = CurveOptions;
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;

 protected:
  ScoreCurve(const std::string& name, const CurveOptions& options);

  /// True and false positives at falling thresholds, (T) or (classes, T), in double precision.
  struct Points {
    at::Tensor tp, fp;
    at::Tensor positives, negatives;  // of all samples: a scalar, or (classes, 1)
    bool no_label_but_zero = false;   // of exact points
  };
  /// Returns the area under the curve through exact points of one class; of several classes, (classes).
  [[nodiscard]] virtual at::Tensor exact_area(const Points& points) const = 0;
  /// Returns the areas under curves through points at fixed thresholds.
  [[nodiscard]] virtual at::Tensor binned_area(const Points& points) const { return exact_area(points); }

 private:
  void keep_scores(const LabelBatch& batch);
  void count_directly(const LabelBatch& batch, Scores reading) override;
  at::Tensor count_by_operators(const LabelBatch& batch, Scores reading) override;
  [[nodiscard]] bool ranks_by_odds() const;
  [[nodiscard]] at::Tensor compute_exact() const;
  [[nodiscard]] at::Tensor compute_binned() const;
  [[nodiscard]] at::Tensor areas_of(const at::Tensor& scores, const at::Tensor& labels) const;
  [[nodiscard]] at::Tensor area_of(const at::Tensor& scores, const at::Tensor& labels, int64_t positive) const;
  [[nodiscard]] at::Tensor averaged(const at::Tensor& areas, const at::Tensor& positives) const;

  Average average_;
  at::Tensor thresholds_;       // rising; undefined: exact
  at::Tensor odds_thresholds_;  // the same as log-odds, for logits
  // Exact: rows of scores, and of labels (-1 where they do not count).
  size_t scores_ = 0, labels_ = 0;
  // Binned: for each class, negatives and positives by the number of thresholds that their score reaches; flat.
  ScoreCounts histogram_ = {};
};

/// The area under the receiver operating characteristic: the probability that a positive sample has a higher score than
/// a negative one. 0 for a class without positive or negative samples.
class AUROC final : public ScoreCurve {
 public:
  explicit AUROC(const CurveOptions& options) : ScoreCurve("AUROC", options) {}

 private:
  [[nodiscard]] at::Tensor exact_area(const Points& points) const override;
};

/// The area under the curve of precision over recall, as a sum of steps: over falling thresholds, the precision times
/// the gain in recall. Without thresholds, a class without samples is NaN, and averages leave it out.
class AveragePrecision final : public ScoreCurve {
 public:
  explicit AveragePrecision(const CurveOptions& options) : ScoreCurve("AveragePrecision", options) {}

 private:
  [[nodiscard]] at::Tensor exact_area(const Points& points) const override;
  [[nodiscard]] at::Tensor binned_area(const Points& points) const override;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Normalize> {
  static constexpr EnumName<metrics::Normalize> names[] = {{"none", metrics::Normalize::none},
                                                           {"true", metrics::Normalize::truth},
                                                           {"pred", metrics::Normalize::pred},
                                                           {"all", metrics::Normalize::all}};
};

template <>
struct EnumNames<metrics::CalibrationNorm> {
  static constexpr EnumName<metrics::CalibrationNorm> names[] = {{"l1", metrics::CalibrationNorm::l1},
                                                                 {"l2", metrics::CalibrationNorm::l2},
                                                                 {"max", metrics::CalibrationNorm::max}};
};

}  // namespace levin
