// What torchvision's transforms of tensors do: sizes, crops, the antialiased resize, flips and normalisation, with its
// names, rules and numbers. Images are (…, channels, height, width).
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/batch.h"
#include "levin/data/images/image_decoder.h"

namespace levin {

/// Bilinear, averaging where the image shrinks, as torchvision.transforms.functional.resize(image, size,
/// antialias=True). `images`: uint8 (computed in integers: within 1 of torchvision, which rounds floats) or floating
/// point. Throws Error for any other type, fewer than two dimensions or an empty size.
[[nodiscard]] at::Tensor resize_images(const at::Tensor& images, const ImageSize& size);

/// Returns the size of torchvision's Resize(shorter): the same proportions, the shorter side `shorter` pixels long.
[[nodiscard]] ImageSize size_with_shorter_side(const ImageSize& size, int64_t shorter);

/// Returns the middle of the image, as torchvision's CenterCrop; black is added around where the image is smaller.
[[nodiscard]] at::Tensor center_crop(const at::Tensor& images, const ImageSize& size);

/// The areas and aspect ratios of random crops; the defaults are torchvision's (RandomResizedCrop).
struct RandomCropRange {
  double min_scale = 0.08;  // share of the image's area
  double max_scale = 1;
  double min_ratio = 3.0 / 4.0;  // width to height
  double max_ratio = 4.0 / 3.0;
};

/// Returns the box that torchvision's RandomResizedCrop would cut: a share of the area, uniform in the range of scales,
/// with a ratio whose logarithm is uniform; after ten draws that do not fit, the middle. (Szegedy et al., "Going Deeper
/// with Convolutions", 2014, section 6.)
[[nodiscard]] ImageBox random_crop_box(const ImageSize& image, const RandomCropRange& range, at::Generator& generator);

/// The mean and standard deviation of red, green and blue, in units of 0 to 1. The defaults change nothing.
struct ColourScale {
  std::array<double, 3> mean = {0, 0, 0};
  std::array<double, 3> deviation = {1, 1, 1};
};

/// Returns the scale of options, three numbers each.
[[nodiscard]] ColourScale colour_scale(const std::vector<double>& mean, const std::vector<double>& deviation);

namespace detail {

/// Fields of data modules of images: how training changes an image, and the colours' scale.
template <class O>
FieldList image_fields() {
  const auto three = [](const std::vector<double>& list) { return list.size() == 3; };
  return levin::fields(
      field("min_scale", &O::min_scale, "training: the smallest part of an image, as a share of its area")
          .above(0.0)
          .max(1.0),
      field("flip", &O::flip, "training: mirror every second image left to right"),
      field("mean", &O::mean, "of red, green and blue from 0 to 1, subtracted").check(three, "three numbers"),
      field("std", &O::std, "of red, green and blue, which divides")
          .check([](const std::vector<double>& list) { return list.size() == 3 && std::ranges::min(list) > 0; },
                 "three numbers > 0"));
}

}  // namespace detail

/// Collates samples. Samples of an image (3, H, W) uint8, its label () int64 and, if there is a third tensor, () bool,
/// whether to mirror the image left to right, become x (batch, 3, H, W) float32, (pixel / 255 - mean) / deviation, and
/// y (batch) int64; of images alone, x alone. Samples without tensors are left out. Throws DataError if none is left or
/// the images differ in size.
[[nodiscard]] Batch image_batch(const std::vector<Batch>& samples, const ColourScale& scale);

/// Which part of an image is used. none: the whole image; center: its middle; random: a different part at each visit
/// (RandomResizedCrop).
enum class ImageCrop { none, center, random };
template <>
struct EnumNames<ImageCrop> {
  static constexpr EnumName<ImageCrop> names[] = {
      {"none", ImageCrop::none}, {"center", ImageCrop::center}, {"random", ImageCrop::random}};
};

/// How an image file is decoded, cropped and resized for a sample.
struct ImageView {
  ImageCrop crop = ImageCrop::none;
  int64_t size = 0;                 // height and width of the result in pixels; 0: the size of the image
  int64_t shorter_side = 0;         // center: what the shorter side is resized to before; 0: it is not
  RandomCropRange range = {};       // random
  bool scaled_decoding = true;      // JPEGs that shrink by more than half are decoded at a smaller size
  int64_t max_pixels = kMaxPixels;  // of a file
};

/// Returns the image in the file, (3, H, W) uint8: random: a part of it, resized to size x size; center: resized so
/// that its shorter side has `shorter_side` pixels, then the middle size x size; none: resized to size x size.
/// `generator` draws the random part. Throws DataError naming the file.
[[nodiscard]] at::Tensor read_image(const std::string& path, const ImageView& view, at::Generator& generator);
/// Same for an image that is open, `name` in errors: only the part that is used is decoded, as far as its format
/// allows.
[[nodiscard]] at::Tensor read_image(ImageDecoder& image, const std::string& name, const ImageView& view,
                                    at::Generator& generator);
/// Same for an image in memory, (3, H, W) uint8.
[[nodiscard]] at::Tensor view_image(const at::Tensor& image, const std::string& name, const ImageView& view,
                                    at::Generator& generator);

}  // namespace levin
