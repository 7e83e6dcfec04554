// What areas under curves are computed from: all scores, or counts at a fixed number of thresholds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/metrics/classification_metric.h"

namespace levin::metrics {

struct CurveCounts;

struct CurveOptions {
  Task task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  // Unset: every score is kept, the value is exact, and memory grows with the samples. A number: counts at so many
  // thresholds from 0 to 1, whose memory is fixed.
  std::optional<int64_t> thresholds = std::nullopt;
  Average average = Average::macro;                    // micro: of multilabel only
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  Scores scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = CurveOptions;
    return levin::fields(
        field("task", &O::task, "what a sample's labels are"),
        field("num_classes", &O::num_classes, "classes of the task multiclass").min(0),
        field("num_labels", &O::num_labels, "labels of the task multilabel").min(0),
        field("thresholds", &O::thresholds, "how many thresholds scores are counted at; unset: all scores are kept")
            .check([](const auto& count) { return !count || *count >= 2; }, ">= 2, or null"),
        field("average", &O::average, "how the values of classes or labels become one"),
        field("ignore_index", &O::ignore_index, "samples with this label are left out"),
        field("scores", &O::scores, kScoresHelp));
  }
};

/// The base of AUROC and AveragePrecision. Both take probabilities or logits: scores (N, C, ...) and target (N, ...)
/// for multiclass, both (N, L, ...) for multilabel, both (N, ...) for binary.
class ScoreCurve : public ClassificationMetric {
 public:
  using Options = CurveOptions;
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  /// NaN, or NaN for each class, before the first sample.
  [[nodiscard]] at::Tensor compute() const override;

 protected:
  ScoreCurve(const std::string& name, const CurveOptions& options);

  /// True and false positives at falling thresholds, (T) or (classes, T), in double precision.
  struct Points {
    at::Tensor tp, fp;
    at::Tensor positives, negatives;  // of all samples: a scalar, or (classes, 1)
    bool no_label_but_zero = false;   // of exact points
  };
  /// The area under the curve through exact points of one class; of several classes, (classes).
  [[nodiscard]] virtual at::Tensor exact_area(const Points& points) const = 0;
  /// The areas under curves through points at fixed thresholds.
  [[nodiscard]] virtual at::Tensor binned_area(const Points& points) const { return exact_area(points); }

 private:
  void keep_scores(const LabelBatch& batch);
  void count_directly(const LabelBatch& batch, Scores reading);
  void count_by_operators(const LabelBatch& batch, Scores reading);
  [[nodiscard]] bool ranks_by_odds() const;
  [[nodiscard]] at::Tensor compute_exact() const;
  [[nodiscard]] at::Tensor compute_binned() const;
  [[nodiscard]] at::Tensor areas_of(const at::Tensor& scores, const at::Tensor& labels) const;
  [[nodiscard]] at::Tensor area_through(const CurveCounts& counts) const;
  [[nodiscard]] at::Tensor area_of(const at::Tensor& scores, const at::Tensor& labels, int64_t positive) const;
  [[nodiscard]] at::Tensor averaged(const at::Tensor& areas, const at::Tensor& positives) const;

  Average average_;
  at::Tensor thresholds_;       // rising; undefined: exact
  at::Tensor odds_thresholds_;  // the same as log-odds, for logits
  // Exact: rows of scores, and of labels (-1 where they do not count).
  size_t scores_ = 0, labels_ = 0;
  // Binned: for each class, negatives and positives by how many thresholds their score reaches; flat.
  ScoreCounts histogram_ = {};
};

}  // namespace levin::metrics
