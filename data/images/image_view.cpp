#include "levin/data/images/image_view.h"

#include <algorithm>
#include <memory>

#include "levin/core/error.h"

namespace levin {

namespace {

at::Tensor decode_to(ImageDecoder& decoder, const ImageBox& box, const ImageSize& size, const ImageView& view) {
  return resize_images(decoder.decode(box, view.scaled_decoding ? size : ImageSize{}), size);
}

// The longer side of a narrow image grows with the shorter one, from a small file to any size.
void check_resized(const std::string& path, const ImageSize& size, const ImageView& view) {
  const int64_t most = std::max(view.most_pixels, kMostPixels);
  if (size.height <= most / std::max<int64_t>(1, size.width)) return;
  throw DataError(path + ": with a shorter side of " + std::to_string(view.shorter_side) + " pixels the image has " +
                  std::to_string(size.width) + " x " + std::to_string(size.height) + ", more than the " +
                  std::to_string(most) + " allowed. Cut it, or leave it out.");
}

}  // namespace

at::Tensor read_image(const std::string& path, const ImageView& view, at::Generator& generator) {
  const std::unique_ptr<ImageDecoder> decoder = open_image(path, view.most_pixels);
  const ImageSize all = decoder->size();
  const ImageBox whole{0, 0, all.height, all.width};
  const ImageSize result{view.size, view.size};
  switch (view.crop) {
    case ImageCrop::random: return decode_to(*decoder, random_crop_box(all, view.range, generator), result, view);
    case ImageCrop::center: {
      const ImageSize resized = view.shorter_side > 0 ? size_with_shorter_side(all, view.shorter_side) : all;
      check_resized(path, resized, view);
      return center_crop(decode_to(*decoder, whole, resized, view), result);
    }
    default: return view.size > 0 ? decode_to(*decoder, whole, result, view) : decoder->decode();
  }
}

}  // namespace levin
