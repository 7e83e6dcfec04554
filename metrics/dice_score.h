// DiceScore of segmentation masks.
//
//   levin::metrics::DiceScore dice_{{.num_classes = 21, .input_format = levin::metrics::MaskFormat::index}};
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "levin/core/fields.h"
#include "levin/metrics/classification_options.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/segmentation_counts.h"

namespace levin::metrics {

/// samplewise: the mean of the scores of samples; global: the score of the pixels of all samples.
enum class AggregationLevel { samplewise, global };

struct DiceScoreOptions {
  int64_t num_classes = 0;         // required
  bool include_background = true;  // false: without class 0
  Average average = Average::macro;
  AggregationLevel aggregation_level = AggregationLevel::samplewise;
  MaskFormat input_format = MaskFormat::one_hot;

  template <class = void>
  static auto fields() {
    using O = DiceScoreOptions;
    return levin::fields(field("num_classes", &O::num_classes, "classes, the background included").min(1),
                         field("include_background", &O::include_background, "false: without class 0"),
                         field("average", &O::average, "how the scores of classes become one"),
                         field("aggregation_level", &O::aggregation_level,
                               "samplewise: the mean over samples; global: the score of all pixels"),
                         field("input_format", &O::input_format, "what preds and target are"));
  }
};

/// 2 * |A and B| / (|A| + |B|), as torchmetrics.segmentation's DiceScore. A class, or a sample, without a pixel in
/// either mask is left out; without any the value is nan. Shapes: see MaskFormat.
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

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::AggregationLevel> {
  static constexpr std::array names{std::pair{"samplewise", metrics::AggregationLevel::samplewise},
                                    std::pair{"global", metrics::AggregationLevel::global}};
};

}  // namespace levin
