// StructuralSimilarityIndexMeasure (SSIM) of images.
//
//   levin::metrics::StructuralSimilarityIndexMeasure ssim_{{.data_range = 1.0}};
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/fields.h"
#include "levin/metrics/image_reduction.h"
#include "levin/metrics/metric.h"

namespace levin::metrics {

/// torchmetrics' return_full_image and return_contrast_sensitivity are not supported.
struct StructuralSimilarityIndexMeasureOptions {
  using Range = std::variant<double, std::array<double, 2>>;

  bool gaussian_kernel = true;                            // false: a mean over kernel_size pixels
  std::variant<double, std::vector<double>> sigma = 1.5;  // of the Gaussian, in pixels; or one per dimension
  std::variant<int64_t, std::vector<int64_t>> kernel_size = int64_t{11};  // of the mean; or one per dimension
  ImageReduction reduction = ImageReduction::elementwise_mean;
  std::optional<Range> data_range = std::nullopt;  // highest minus lowest value, or both, to which values are then
                                                   // clamped; null: found out from each batch
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
        field("reduction", &O::reduction, "how the values of images become one"),
        field("data_range", &O::data_range, "highest minus lowest value, or [lowest, highest]; null: of each batch"),
        field("k1", &O::k1, "keeps the quotient of brightness finite").min(0.0),
        field("k2", &O::k2, "keeps the quotient of contrast finite").min(0.0));
  }
  static bool is_positive(const std::variant<double, std::vector<double>>& sigma);
  static bool is_odd(const std::variant<int64_t, std::vector<int64_t>>& size);
};

/// Shapes: (N, C, H, W) or (N, C, D, H, W). Borders are reflected: a side must be longer than half the kernel, whose
/// size is 2 * int(3.5 * sigma + 0.5) + 1 for a Gaussian.
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
