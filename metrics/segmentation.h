// Metrics of segmentation masks: Dice score and mean IoU, as in torchmetrics.segmentation. JaccardIndex
// (classification.h) has the IoU of all pixels together.
//
//   levin::metrics::DiceScore dice_{{.num_classes = 21, .input_format = levin::metrics::MaskFormat::index}};
//
// update() throws Error naming the metric, what it was given and what it takes if shapes, types or devices do not fit.
// On the CPU a class out of range is an error too; on another device such a pixel counts for no class. Constructors
// throw ConfigError naming the option. Every rank updates its own object (metric.h).
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

/// The shapes of masks. one_hot: both (N, C, ...), integers 0 and 1, or scores of which the highest counts. index: both
/// (N, ...), the classes as integers. mixed: one as one_hot, the other as index.
enum class MaskFormat { one_hot, index, mixed };

/// What masks are, for the checks and counts that the metrics below share.
struct MaskSpec {
  std::string metric = "";  // its name, for messages
  int64_t classes = 1;
  bool include_background = true;  // false: without class 0
  EnumOption<MaskFormat> format = MaskFormat::one_hot;

  /// Returns the number of classes that are counted.
  [[nodiscard]] int64_t counted() const { return include_background || classes == 1 ? classes : classes - 1; }
};

/// samplewise: the mean of the scores of samples; global: the score of the pixels of all samples.
enum class AggregationLevel { samplewise, global };

/// Options of DiceScore.
struct DiceScoreOptions {
  int64_t num_classes = 0;         // required
  bool include_background = true;  // false: without class 0
  EnumOption<Average> average = Average::macro;
  EnumOption<AggregationLevel> aggregation_level = AggregationLevel::samplewise;
  EnumOption<MaskFormat> input_format = MaskFormat::one_hot;

  template <class = void>
  static auto fields() {
    using O = DiceScoreOptions;
    return levin::fields(field("num_classes", &O::num_classes, "number of classes, including the background").min(1),
                         field("include_background", &O::include_background, "false: without class 0"),
                         field("average", &O::average, "how the scores of classes are averaged"),
                         field("aggregation_level", &O::aggregation_level,
                               "samplewise: the mean over samples; global: the score of all pixels"),
                         field("input_format", &O::input_format, "the shapes of preds and target"));
  }
};

/// 2 |A and B| / (|A| + |B|) of the pixels A and B of a class in both masks. A class, or a sample, without a pixel in
/// either mask is left out; nan if nothing is left. Value: a scalar, or a score per class with the average none.
class DiceScore : public TensorMetric {
 public:
  using Options = DiceScoreOptions;
  explicit DiceScore(DiceScoreOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "DiceScore"; }

 private:
  DiceScoreOptions options_;
  MaskSpec spec_;
};

/// Options of MeanIoU.
struct MeanIoUOptions {
  int64_t num_classes = 0;         // required; torchmetrics finds it out from the first batch if it can
  bool include_background = true;  // false: without class 0
  bool per_class = false;          // a value for each class; -1 for an absent class
  EnumOption<MaskFormat> input_format = MaskFormat::one_hot;

  template <class = void>
  static auto fields() {
    using O = MeanIoUOptions;
    return levin::fields(field("num_classes", &O::num_classes, "number of classes, including the background").min(1),
                         field("include_background", &O::include_background, "false: without class 0"),
                         field("per_class", &O::per_class, "a value for each class; -1 for an absent class"),
                         field("input_format", &O::input_format, "the shapes of preds and target"));
  }
};

/// |A and B| / |A or B|, averaged over all classes of all samples that have a pixel in either mask. Value: a scalar, or
/// a value per class with per_class.
class MeanIoU : public TensorMetric {
 public:
  using Options = MeanIoUOptions;
  explicit MeanIoU(MeanIoUOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "MeanIoU"; }

 private:
  MeanIoUOptions options_;
  MaskSpec spec_;
};

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::MaskFormat> {
  static constexpr EnumName<metrics::MaskFormat> names[] = {{"one-hot", metrics::MaskFormat::one_hot},
                                                            {"index", metrics::MaskFormat::index},
                                                            {"mixed", metrics::MaskFormat::mixed}};
};

template <>
struct EnumNames<metrics::AggregationLevel> {
  static constexpr EnumName<metrics::AggregationLevel> names[] = {{"samplewise", metrics::AggregationLevel::samplewise},
                                                                  {"global", metrics::AggregationLevel::global}};
};

}  // namespace levin
