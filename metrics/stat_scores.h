// The counts that accuracy, precision, recall, specificity and F-beta are made of.
#pragma once

#include <string>

#include "levin/metrics/classification_metric.h"

namespace levin::metrics {

/// True and false positives and negatives: of each class or label, or with the average micro of all together.
class StatScores : public ClassificationMetric {
 public:
  using Options = ClassificationOptions;
  /// Scores (N, C, ...) and target (N, ...) for multiclass, both (N, L, ...) for multilabel, both (N, ...) for binary.
  /// Predictions may be labels in the shape of the target.
  void update(const at::Tensor& preds, const at::Tensor& target) override;

 protected:
  /// `takes_beta`: options.beta may be other than 1.
  StatScores(const std::string& name, const ClassificationOptions& options, bool takes_beta = false);

  /// In double precision: (C), or scalars for the task binary and the average micro.
  struct Counts {
    at::Tensor tp, fp, tn, fn;
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] const ClassificationOptions& options() const { return options_; }

  /// Which classes the average macro leaves out: those that are neither predicted nor true, or those never true. It
  /// always leaves out ignore_index where it is a class, and labels of multilabel that have no sample.
  enum class Absent { unseen, never_true };
  /// numerator / denominator (0 where that is 0) of each class, averaged, as float.
  [[nodiscard]] at::Tensor averaged(const at::Tensor& numerator, const at::Tensor& denominator, const Counts& counts,
                                    Absent absent) const;
  /// Absent::never_true with top_k > 1, as torchmetrics has it.
  [[nodiscard]] Absent absent_by_top_k() const { return spec().top_k == 1 ? Absent::unseen : Absent::never_true; }

 private:
  void count_directly(const LabelBatch& batch, Scores reading);
  [[nodiscard]] at::Tensor count_by_operators(const LabelBatch& batch, Scores reading);  // labels out of range
  [[nodiscard]] int64_t* data(size_t index) { return state(index).mutable_data_ptr<int64_t>(); }

  ClassificationOptions options_;
  bool is_pooled_;  // one count of all classes or labels
  ScoreCounts tp_ = {}, fp_ = {}, tn_ = {}, fn_ = {};
};

}  // namespace levin::metrics
