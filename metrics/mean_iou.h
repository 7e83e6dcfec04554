// MeanIoU of segmentation masks: the mean over samples and classes. JaccardIndex has the IoU of all pixels together.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/segmentation_counts.h"

namespace levin::metrics {

struct MeanIoUOptions {
  int64_t num_classes = 0;         // torchmetrics: found out from the first batch where it can be; here: required
  bool include_background = true;  // false: without class 0
  bool per_class = false;          // a value for each class; -1 for one that is nowhere
  MaskFormat input_format = MaskFormat::one_hot;

  template <class = void>
  static auto fields() {
    using O = MeanIoUOptions;
    return levin::fields(field("num_classes", &O::num_classes, "classes, the background included").min(1),
                         field("include_background", &O::include_background, "false: without class 0"),
                         field("per_class", &O::per_class, "a value for each class; -1 for one that is nowhere"),
                         field("input_format", &O::input_format, "what preds and target are"));
  }
};

/// |A and B| / |A or B|, the mean over all classes of all samples that have a pixel in either mask. Shapes: see
/// MaskFormat.
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
