#include <ATen/ops/tensor.h>

#include <cmath>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

// The factor of each dimension of the images that the model gave; none where it gave sizes only.
std::vector<double> scale_factors(const OperatorCall& call) {
  if (call.has("scale_factors")) return call.reals("scale_factors");
  std::vector<double> factors;
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (call.has(name)) factors.push_back(call.real(name));
  }
  return factors;
}

bool is_exact(const BatchNumber& from, const BatchNumber& to, double factor) {
  if (factor == std::floor(factor)) return to == from * static_cast<int64_t>(factor);
  return from.is_fixed() && to.is_fixed() && static_cast<double>(to.rest) == static_cast<double>(from.rest) * factor;
}

// PyTorch takes samples by the factor that it was given, and not by the ratio of the sizes, which are rounded. Such
// dimensions are resized by their factors, and the others, whose ratio of sizes is the factor, by their sizes: a
// factor in float32 may give other sizes (10 * 0.7).
struct Steps {
  std::vector<float> scales{1, 1};
  bool by_scales = false, by_sizes = false;
};

Steps steps_of(const OperatorCall& call) {
  const BatchNumbers &from = call.value("input").sizes, &to = call.result().sizes;
  const std::vector<double> factors = scale_factors(call);
  if (call.flag("align_corners") || factors.size() + 2 != from.size()) return {.by_sizes = true};
  Steps steps;
  for (size_t k = 0; k < factors.size(); ++k) {
    const BatchNumber &size = from[k + 2], &wanted = to[k + 2];
    const bool exact = is_exact(size, wanted, factors[k]);
    (exact ? steps.by_sizes : steps.by_scales) = true;
    steps.scales.push_back(exact ? 1 : static_cast<float>(factors[k]));
    if (exact || !size.is_fixed() || !wanted.is_fixed()) continue;
    if (std::floor(static_cast<double>(steps.scales.back()) * static_cast<double>(size.rest)) !=
        static_cast<double>(wanted.rest)) {
      throw NotTranslated("by a factor that float32 rounds to another size; give the size");
    }
  }
  return steps;
}

void resize(OperatorCall& call, const std::string& mode, const std::string& coordinates, Attributes attributes) {
  attributes.emplace_back("mode", mode);
  attributes.emplace_back("coordinate_transformation_mode", call.flag("align_corners") ? "align_corners" : coordinates);
  const Steps steps = steps_of(call);
  std::string images = call.in("input");
  if (steps.by_scales) {
    images = call.graph().add("Resize", {images, "", call.graph().constant(at::tensor(steps.scales))}, attributes);
  }
  if (steps.by_sizes) {
    images = call.graph().add("Resize", {images, "", "", call.graph().batch_numbers(call.result().sizes)}, attributes);
  }
  call.give(images);
}

void upsample_nearest(OperatorCall& call) {
  resize(call, "nearest", "asymmetric", {{"nearest_mode", std::string("floor")}});
}

// By the distances of the elements' centers.
void upsample_nearest_exact(OperatorCall& call) {
  resize(call, "nearest", "half_pixel", {{"nearest_mode", std::string("round_prefer_ceil")}});
}

void upsample_linear(OperatorCall& call) {
  resize(call, "linear", "half_pixel", {});
}

// Keys, Cubic convolution interpolation for digital image processing, 1981, with PyTorch's coefficients.
void upsample_cubic(OperatorCall& call) {
  resize(call, "cubic", "half_pixel", {{"cubic_coeff_a", -0.75}});
}

void check_antialias(OperatorCall& call) {
  if (call.graph().opset() < 18) throw NotTranslated("needs --opset 18");
  if (call.flag("align_corners"))
    throw NotTranslated("with align_corners, which ONNX has for resizing without antialias");
}

void upsample_linear_smoothed(OperatorCall& call) {
  check_antialias(call);
  resize(call, "linear", "half_pixel", {{"antialias", int64_t{1}}, {"exclude_outside", int64_t{1}}});
}

void upsample_cubic_smoothed(OperatorCall& call) {
  check_antialias(call);
  resize(call, "cubic", "half_pixel",
         {{"antialias", int64_t{1}}, {"exclude_outside", int64_t{1}}, {"cubic_coeff_a", -0.5}});
}

// Values of an image at the places of a grid, which are from -1 to 1.
void grid_sample(OperatorCall& call) {
  const bool is_new = call.graph().opset() >= 20;
  if (call.rank("input") > 4 && !is_new) throw NotTranslated("of volumes needs --opset 20");
  const std::vector<std::string> modes{is_new ? "linear" : "bilinear", "nearest", is_new ? "cubic" : "bicubic"},
      paddings{"zeros", "border", "reflection"};
  call.give(call.graph().add("GridSample", {call.in("input"), call.in("grid")},
                             {{"mode", modes.at(static_cast<size_t>(call.whole_number("interpolation_mode")))},
                              {"padding_mode", paddings.at(static_cast<size_t>(call.whole_number("padding_mode")))},
                              {"align_corners", int64_t{call.flag("align_corners") ? 1 : 0}}}));
}

}  // namespace

Translations resizing_translations() {
  return {{"upsample_nearest1d", upsample_nearest},
          {"upsample_nearest2d", upsample_nearest},
          {"upsample_nearest3d", upsample_nearest},
          {"_upsample_nearest_exact1d", upsample_nearest_exact},
          {"_upsample_nearest_exact2d", upsample_nearest_exact},
          {"_upsample_nearest_exact3d", upsample_nearest_exact},
          {"upsample_linear1d", upsample_linear},
          {"upsample_bilinear2d", upsample_linear},
          {"upsample_trilinear3d", upsample_linear},
          {"upsample_bicubic2d", upsample_cubic},
          {"_upsample_bilinear2d_aa", upsample_linear_smoothed},
          {"_upsample_bicubic2d_aa", upsample_cubic_smoothed},
          {"grid_sampler_2d", grid_sample},
          {"grid_sampler_3d", grid_sample}};
}

}  // namespace levin::onnx
