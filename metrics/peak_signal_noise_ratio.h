// PeakSignalNoiseRatio of images, in decibels.
//
//   levin::metrics::PeakSignalNoiseRatio psnr_{{.data_range = 1.0}};
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/fields.h"
#include "levin/metrics/image_reduction.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

struct PeakSignalNoiseRatioOptions {
  std::variant<double, std::array<double, 2>> data_range = 0.0;  // required: highest minus lowest value, or both, to
                                                                 // which values are then clamped
  double base = 10.0;
  ImageReduction reduction = ImageReduction::elementwise_mean;  // of the values that dim makes
  std::vector<int64_t> dim = {};  // dimensions that one value is of; empty: one value of all

  template <class = void>
  static auto fields() {
    using O = PeakSignalNoiseRatioOptions;
    return levin::fields(field("data_range", &O::data_range,
                               "highest minus lowest value, or [lowest, highest], to which values are clamped")
                             .check([](const auto& range) { return span(range) > 0; }, "set, and above 0"),
                         field("base", &O::base, "base of the logarithm").above(1.0),
                         field("reduction", &O::reduction, "how the values that dim makes become one"),
                         field("dim", &O::dim, "dimensions that one value is of; empty: one value of all"));
  }
  static double span(const std::variant<double, std::array<double, 2>>& range) {
    const auto* both = std::get_if<1>(&range);
    return both != nullptr ? (*both)[1] - (*both)[0] : std::get<0>(range);
  }
};

/// Shapes: any, (N, C, H, W) with .dim = {1, 2, 3} for a value per image.
class PeakSignalNoiseRatio : public TensorMetric {
 public:
  using Options = PeakSignalNoiseRatioOptions;
  explicit PeakSignalNoiseRatio(PeakSignalNoiseRatioOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "PeakSignalNoiseRatio"; }

 private:
  PeakSignalNoiseRatioOptions options_;
};

}  // namespace levin::metrics
