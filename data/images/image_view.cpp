#include "levin/data/images/image_view.h"

#include <memory>

namespace levin {

namespace {

at::Tensor decode_to(ImageDecoder& decoder, const ImageBox& box, const ImageSize& size, const ImageView& view) {
  return resize_images(decoder.decode(box, view.scaled_decoding ? size : ImageSize{}), size);
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
      return center_crop(decode_to(*decoder, whole, resized, view), result);
    }
    default: return view.size > 0 ? decode_to(*decoder, whole, result, view) : decoder->decode();
  }
}

}  // namespace levin
