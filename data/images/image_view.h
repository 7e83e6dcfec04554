// How the images of a data set come out: cut and resized to one size while they are decoded.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "levin/core/fields.h"
#include "levin/data/images/image_transforms.h"

namespace levin {

/// none: the whole image; center: its middle; random: another part at each visit (RandomResizedCrop).
enum class ImageCrop { none, center, random };
template <>
struct EnumNames<ImageCrop> {
  static constexpr std::array names{std::pair{"none", ImageCrop::none}, std::pair{"center", ImageCrop::center},
                                    std::pair{"random", ImageCrop::random}};
};

struct ImageView {
  ImageCrop crop = ImageCrop::none;
  int64_t size = 0;                   // pixels, of height and width of the result; 0: those of the image
  int64_t shorter_side = 0;           // center: what the shorter side is resized to before; 0: it is not
  RandomCropRange range = {};         // random
  bool scaled_decoding = true;        // JPEGs that shrink by more than half are decoded at a smaller size
  int64_t most_pixels = kMostPixels;  // of a file
};

/// The image in the file, (3, H, W) uint8: random: a part of it, resized to size x size; center: resized so that its
/// shorter side has `shorter_side` pixels, then the middle size x size; none: resized to size x size. `generator` draws
/// the random part. Throws DataError naming the file.
[[nodiscard]] at::Tensor read_image(const std::string& path, const ImageView& view, at::Generator& generator);

}  // namespace levin
