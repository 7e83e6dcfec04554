// The base of classification metrics: what their labels and scores are, and what happens to labels that are out of
// range.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/metrics/label_batch.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

// Labels out of range are an error of update() on the CPU. On another device it would have to wait for them, so they
// are counted there, are left out of all other counts, and make the value NaN.
class ClassificationMetric : public TensorMetric {
 public:
  [[nodiscard]] std::string name() const override { return spec_.metric; }

 protected:
  explicit ClassificationMetric(LabelSpec spec);

  [[nodiscard]] const LabelSpec& spec() const { return spec_; }
  /// How many labels of a batch were out of range: a scalar on its device.
  void add_out_of_range(const at::Tensor& count);
  /// `value`, or NaN in its place if labels were out of range.
  [[nodiscard]] at::Tensor unless_out_of_range(const at::Tensor& value) const;
  /// The same for a metric whose value has no NaN: throws Error.
  void throw_if_out_of_range() const;

  // Note [One decision for all scores]
  // Whether scores are probabilities or logits is known once all of them were seen, on all ranks: logits may lie
  // between 0 and 1 in any number of batches. Until a score is outside [0, 1], each batch is counted in both ways, and
  // compute() takes the counts that are right. torchmetrics: decides for each batch.

  /// The indices of a state that counts scores. They are equal where it does not matter what scores are, or where the
  /// option states it.
  struct ScoreCounts {
    size_t of_probabilities = 0;
    size_t of_logits = 0;
    [[nodiscard]] size_t at(Scores reading) const { return reading == Scores::logits ? of_logits : of_probabilities; }
  };

  /// Called first by a constructor whose metric must know what scores are. Does nothing if the option states it.
  void decide_scores();
  /// Declares a sum state of zeros with the shape `sizes`.
  ScoreCounts add_counts(const std::string& name, at::IntArrayRef sizes, at::ScalarType type = at::kLong);
  /// Looks at the scores of a batch. Returns in which ways they have to be counted, each at ScoreCounts::at(reading).
  /// Throws Error on the CPU for scores that contradict the option.
  [[nodiscard]] std::vector<Scores> readings(const LabelBatch& batch);
  /// The same, where it is known whether a score is outside [0, 1].
  void note_logits(const at::Tensor& has_logits);
  /// The counts that are right for all scores so far.
  [[nodiscard]] at::Tensor decided(const ScoreCounts& counts) const;
  /// Whether scores are logits, as far as is known: a bool scalar.
  [[nodiscard]] at::Tensor are_logits() const;

 private:
  LabelSpec spec_;
  size_t out_of_range_;
  bool is_open_ = false;  // it matters what scores are, and the option is auto
  size_t has_logits_ = 0;
};

}  // namespace levin::metrics
