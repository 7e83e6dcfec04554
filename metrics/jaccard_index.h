// JaccardIndex: intersection over union (IoU) of predicted and true labels.
#pragma once

#include <cstdint>
#include <optional>

#include "levin/metrics/classification_metric.h"

namespace levin::metrics {

struct JaccardIndexOptions {
  Task task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  double threshold = 0.5;   // binary and multilabel: a score above it is 1
  Average average = Average::macro;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  double zero_division = 0.0;                          // the value of a class that is nowhere
  Scores scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = JaccardIndexOptions;
    return levin::fields(field("task", &O::task, "what a sample's labels are"),
                         field("num_classes", &O::num_classes, "classes of the task multiclass").min(0),
                         field("num_labels", &O::num_labels, "labels of the task multilabel").min(0),
                         field("threshold", &O::threshold, "a score above it is 1, of the tasks binary and multilabel")
                             .min(0.0)
                             .max(1.0),
                         field("average", &O::average, "how the values of classes or labels become one"),
                         field("ignore_index", &O::ignore_index, "samples with this label are left out"),
                         field("zero_division", &O::zero_division, "the value of a class that is nowhere").any_number(),
                         field("scores", &O::scores, kScoresHelp));
  }
};

/// Of all pixels, or labels, of all batches together. For binary the class 1. The macro average leaves out classes that
/// are nowhere, ignore_index where it is a class, and labels of multilabel that have no sample. Shapes: those of
/// ConfusionMatrix.
class JaccardIndex final : public ClassificationMetric {
 public:
  using Options = JaccardIndexOptions;
  explicit JaccardIndex(const JaccardIndexOptions& options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;

 private:
  [[nodiscard]] at::Tensor averaged(const at::Tensor& both, const at::Tensor& either, const at::Tensor& truth,
                                    const at::Tensor& counted) const;

  Average average_;
  double zero_division_;
  ScoreCounts cells_ = {};  // of the confusion matrix, flat
};

}  // namespace levin::metrics
