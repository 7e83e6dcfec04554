// Metrics of images: peak signal-to-noise ratio (PSNR) and structural similarity (SSIM). Names, options and values
// follow torchmetrics.image.
//
//   levin::metrics::StructuralSimilarityIndexMeasure ssim_{{.data_range = 1.0}};
//
// preds and target have the same shape, on one device. update() throws Error naming the metric, both shapes or devices
// if they do not fit; constructors throw ConfigError naming the option. Every rank updates its own object (metric.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/metrics/metric.h"
#include "levin/metrics/reduction.h"

namespace levin::metrics {

/// Options of PeakSignalNoiseRatio.
struct PeakSignalNoiseRatioOptions {
  std::variant<double, std::array<double, 2>> data_range = 0.0;  // required: highest minus lowest value; or both, to
                                                                 // which values are then clamped
  double base = 10.0;
  EnumOption<ImageReduction> reduction = ImageReduction::elementwise_mean;  // of the values that dim makes
  std::vector<int64_t> dim = {};                                            // dimensions of one value; empty: all

  template <class = void>
  static auto fields() {
    using O = PeakSignalNoiseRatioOptions;
    return levin::fields(field("data_range", &O::data_range,
                               "highest minus lowest value, or [lowest, highest], to which values are clamped")
                             .check([](const auto& range) { return span(range) > 0; }, "set, and above 0"),
                         field("base", &O::base, "base of the logarithm").above(1.0),
                         field("reduction", &O::reduction, "how the values that dim makes are reduced"),
                         field("dim", &O::dim, "dimensions over which one value is computed; empty: all"));
  }
  static double span(const std::variant<double, std::array<double, 2>>& range) {
    const auto* both = std::get_if<1>(&range);
    return both != nullptr ? (*both)[1] - (*both)[0] : std::get<0>(range);
  }
};

/// 10 log10(range^2 / mean squared error), in decibels. Shapes: any; (N, C, H, W) with .dim = {1, 2, 3} for a value per
/// image. Value: a scalar, or one per image with the reduction none.
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

/// torchmetrics' return_full_image and return_contrast_sensitivity are not supported.
struct StructuralSimilarityIndexMeasureOptions {
  using Range = std::variant<double, std::array<double, 2>>;

  bool gaussian_kernel = true;                            // false: a mean over kernel_size pixels
  std::variant<double, std::vector<double>> sigma = 1.5;  // of the Gaussian, in pixels; or one per dimension
  std::variant<int64_t, std::vector<int64_t>> kernel_size = int64_t{11};  // of the mean; or one per dimension
  EnumOption<ImageReduction> reduction = ImageReduction::elementwise_mean;
  std::optional<Range> data_range = std::nullopt;  // highest minus lowest value; or both, to which values are then
                                                   // clamped; null: taken from each batch
  double k1 = 0.01;
  double k2 = 0.03;

  template <class = void>
  static auto fields() {
    using O = StructuralSimilarityIndexMeasureOptions;
    return levin::fields(
        field("gaussian_kernel", &O::gaussian_kernel, "false: a mean over kernel_size pixels"),
        field("sigma", &O::sigma, "of the Gaussian, in pixels; or one per dimension").check(is_positive, "above 0"),
        field("kernel_size", &O::kernel_size, "pixels of the mean; or one per dimension")
            .check(is_odd, "odd and above 0"),
        field("reduction", &O::reduction, "how the values of images are reduced"),
        field("data_range", &O::data_range, "highest minus lowest value, or [lowest, highest]; null: of each batch"),
        field("k1", &O::k1, "keeps the quotient of brightness finite").min(0.0),
        field("k2", &O::k2, "keeps the quotient of contrast finite").min(0.0));
  }
  static bool is_positive(const std::variant<double, std::vector<double>>& sigma);
  static bool is_odd(const std::variant<int64_t, std::vector<int64_t>>& size);
};

/// The structural similarity of images (Wang et al. 2004), averaged over pixels and channels. Shapes: (N, C, H, W) or
/// (N, C, D, H, W). Borders are reflected: a side must be longer than half the kernel, whose size is
/// 2 * int(3.5 * sigma + 0.5) + 1 for a Gaussian. Value: a scalar, or (N) with the reduction none.
class StructuralSimilarityIndexMeasure : public TensorMetric {
 public:
  using Options = StructuralSimilarityIndexMeasureOptions;
  explicit StructuralSimilarityIndexMeasure(Defaults = {})
      : StructuralSimilarityIndexMeasure(StructuralSimilarityIndexMeasureOptions()) {}
  explicit StructuralSimilarityIndexMeasure(StructuralSimilarityIndexMeasureOptions options);
  void update(const at::Tensor& preds, const at::Tensor& target) override;
  [[nodiscard]] at::Tensor compute() const override;
  [[nodiscard]] std::string name() const override { return "StructuralSimilarityIndexMeasure"; }

 private:
  StructuralSimilarityIndexMeasureOptions options_;
};

}  // namespace levin::metrics
