// How often each class was predicted for each class.
#pragma once

#include "levin/metrics/classification_metric.h"

namespace levin::metrics {

/// What the counts are divided by: the samples of their true class, of their predicted class, or all; none: nothing.
enum class Normalize { none, truth, pred, all };

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Normalize> {
  static constexpr std::array names{
      std::pair{"none", metrics::Normalize::none}, std::pair{"true", metrics::Normalize::truth},
      std::pair{"pred", metrics::Normalize::pred}, std::pair{"all", metrics::Normalize::all}};
};

}  // namespace levin

namespace levin::metrics {

struct ConfusionMatrixOptions {
  Task task = Task::multiclass;
  int64_t num_classes = 0;  // required for multiclass
  int64_t num_labels = 0;   // required for multilabel
  double threshold = 0.5;   // binary and multilabel: a score above it is 1
  Normalize normalize = Normalize::none;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  Scores scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = ConfusionMatrixOptions;
    return levin::fields(field("task", &O::task, "what a sample's labels are"),
                         field("num_classes", &O::num_classes, "classes of the task multiclass").min(0),
                         field("num_labels", &O::num_labels, "labels of the task multilabel").min(0),
                         field("threshold", &O::threshold, "a score above it is 1, of the tasks binary and multilabel")
                             .min(0.0)
                             .max(1.0),
                         field("normalize", &O::normalize, "what the counts are divided by"),
                         field("ignore_index", &O::ignore_index, "samples with this label are left out"),
                         field("scores", &O::scores, kScoresHelp));
  }
};

/// Row: the true class; column: the predicted one. (2, 2) for binary, (C, C) for multiclass, (L, 2, 2) for multilabel;
/// int64, or float if normalized (0 in place of 0/0). Its compute() waits for the device.
class ConfusionMatrix final : public ClassificationMetric {
 public:
  using Options = ConfusionMatrixOptions;
  explicit ConfusionMatrix(const ConfusionMatrixOptions& options);
  /// The shapes of StatScores.
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;

 private:
  Normalize normalize_;
  ScoreCounts cells_ = {};  // flat
};

}  // namespace levin::metrics
