// How far confidence is from accuracy.
#pragma once

#include "levin/metrics/classification_metric.h"

namespace levin::metrics {

/// l1: the mean of the bins' differences (ECE), l2: their root mean square, max: the largest (MCE).
enum class CalibrationNorm { l1, l2, max };

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::CalibrationNorm> {
  static constexpr std::array names{std::pair{"l1", metrics::CalibrationNorm::l1},
                                    std::pair{"l2", metrics::CalibrationNorm::l2},
                                    std::pair{"max", metrics::CalibrationNorm::max}};
};

}  // namespace levin

namespace levin::metrics {

struct CalibrationErrorOptions {
  Task task = Task::multiclass;  // or binary
  int64_t num_classes = 0;       // required for multiclass
  int64_t n_bins = 15;           // of confidence, equally wide
  CalibrationNorm norm = CalibrationNorm::l1;
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  Scores scores = Scores::automatic;

  template <class = void>
  static auto fields() {
    using O = CalibrationErrorOptions;
    return levin::fields(field("task", &O::task, "what a sample's labels are")
                             .check([](Task task) { return task != Task::multilabel; }, "binary or multiclass"),
                         field("num_classes", &O::num_classes, "classes of the task multiclass").min(0),
                         field("n_bins", &O::n_bins, "bins of confidence, equally wide").min(1),
                         field("norm", &O::norm, "how the differences of the bins become one"),
                         field("ignore_index", &O::ignore_index, "samples with this label are left out"),
                         field("scores", &O::scores, kScoresHelp));
  }
};

/// Confidence is the highest probability of multiclass, right if its class is the target's, or the probability of 1 of
/// binary, right if the target is 1. A confidence of 1 is in the last bin (torchmetrics: in a bin of its own, in which
/// float32 puts all large logits). Takes probabilities or logits: scores (N, C, ...) and target (N, ...) for
/// multiclass, both (N, ...) for binary. NaN before the first sample, but 0 for max.
class CalibrationError final : public ClassificationMetric {
 public:
  using Options = CalibrationErrorOptions;
  explicit CalibrationError(const CalibrationErrorOptions& options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;

 private:
  void count_directly(const LabelBatch& batch, Scores reading);
  void count_by_operators(const LabelBatch& batch, Scores reading);

  CalibrationErrorOptions options_;
  at::Tensor boundaries_;  // of bins, of which one more is for NaN
  ScoreCounts count_ = {}, right_ = {}, confidence_ = {};
};

}  // namespace levin::metrics
