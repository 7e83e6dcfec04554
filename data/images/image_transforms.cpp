#include "levin/data/images/image_transforms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>

#include "levin/core/options/error.h"
#include "levin/data/batch_memory.h"

namespace levin {

namespace {

using ColourTable = std::array<std::array<float, 256>, 3>;

// In the order and precision of ToTensor() and Normalize().
ColourTable table_of(const ColourScale& scale) {
  ColourTable table{};
  for (size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(scale.mean[c]), deviation = static_cast<float>(scale.deviation[c]);
    for (size_t v = 0; v < 256; ++v) table[c][v] = (static_cast<float>(v) / 255.0F - mean) / deviation;
  }
  return table;
}

// `image`: (3, H, W) uint8 of any strides.
void write_image(const at::Tensor& image, bool flip, const ColourTable& table, float* to) {
  const int64_t height = image.size(1), width = image.size(2);
  const int64_t step = flip ? -image.stride(2) : image.stride(2);
  const auto* pixels = image.const_data_ptr<uint8_t>() + (flip ? (width - 1) * image.stride(2) : 0);
  for (int64_t c = 0; c < 3; ++c) {
    const float* value = table[static_cast<size_t>(c)].data();
    for (int64_t y = 0; y < height; ++y) {
      const uint8_t* from = pixels + c * image.stride(0) + y * image.stride(1);
      for (int64_t x = 0; x < width; ++x) to[x] = value[from[x * step]];
      to += width;
    }
  }
}

std::string size_text(const at::Tensor& image) {
  return std::to_string(image.size(2)) + " x " + std::to_string(image.size(1));
}

void check_image(const at::Tensor& image, const at::Tensor& first) {
  if (image.dim() != 3 || image.size(0) != 3 || image.scalar_type() != at::kByte) {
    throw DataError("image_batch: expected images (3, height, width) of uint8. Normalise after this, not before.");
  }
  if (image.sizes() == first.sizes()) return;
  throw DataError("image_batch: the images of a batch differ in size: " + size_text(first) + " and " +
                  size_text(image) + " pixels. Set a size that all are brought to, or a batch size of 1.");
}

// Python's round(): a half goes to the even neighbour, which is what std::nearbyint does in the usual rounding mode.
int64_t rounded(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

// The largest middle part whose ratio is within the range.
ImageBox middle_box(const ImageSize& image, const RandomCropRange& range) {
  const double ratio = static_cast<double>(image.width) / static_cast<double>(image.height);
  ImageBox box{0, 0, image.height, image.width};
  if (ratio < range.min_ratio) box.height = rounded(static_cast<double>(box.width) / range.min_ratio);
  if (ratio > range.max_ratio) box.width = rounded(static_cast<double>(box.height) * range.max_ratio);
  box.top = (image.height - box.height) / 2;
  box.left = (image.width - box.width) / 2;
  return box;
}

// Pixels that need no decoding.
class PixelImage final : public ImageDecoder {
 public:
  explicit PixelImage(at::Tensor pixels) : pixels_(std::move(pixels)) {}
  [[nodiscard]] ImageSize size() const override { return {pixels_.size(1), pixels_.size(2)}; }
  [[nodiscard]] at::Tensor decode(const ImageBox& box, const ImageSize& /*at_least*/) override {
    return pixels_.narrow(1, box.top, box.height).narrow(2, box.left, box.width);
  }

 private:
  at::Tensor pixels_;
};

at::Tensor decode_to(ImageDecoder& decoder, const ImageBox& box, const ImageSize& size, const ImageView& view) {
  return resize_images(decoder.decode(box, view.scaled_decoding ? size : ImageSize{}), size);
}

// The longer side of a narrow image grows with the shorter one, from a small file to any size.
void check_resized(const std::string& path, const ImageSize& size, const ImageView& view) {
  const int64_t most = std::max(view.max_pixels, kMaxPixels);
  if (size.height <= most / std::max<int64_t>(1, size.width)) return;
  throw DataError(path + ": with a shorter side of " + std::to_string(view.shorter_side) + " pixels the image has " +
                  std::to_string(size.width) + " x " + std::to_string(size.height) + ", more than the " +
                  std::to_string(most) + " allowed. Cut it, or leave it out.");
}

}  // namespace

at::Tensor resize_images(const at::Tensor& images, const ImageSize& size) {
  const bool good = images.dim() >= 2 && (images.scalar_type() == at::kByte || images.is_floating_point());
  if (!good || size.height < 1 || size.width < 1) {
    throw Error("resize_images: expected images (…, height, width) of uint8 or floating point and a size of at least " +
                std::string("1 x 1, got ") + std::to_string(images.dim()) + " dimensions of " +
                c10::toString(images.scalar_type()) + " and " + std::to_string(size.width) + " x " +
                std::to_string(size.height) + ".");
  }
  const int64_t height = images.size(-2), width = images.size(-1);
  if (height == size.height && width == size.width) return images;
  auto sizes = images.sizes().vec();
  const int64_t channels = images.dim() > 2 ? images.size(-3) : 1;
  const int64_t count = images.dim() > 3 ? images.numel() / std::max<int64_t>(1, channels * height * width) : 1;
  const at::Tensor four = images.dim() == 4 ? images : images.reshape({count, channels, height, width});
  sizes[sizes.size() - 2] = size.height;
  sizes[sizes.size() - 1] = size.width;
  return at::_upsample_bilinear2d_aa(four, {size.height, size.width}, /*align_corners=*/false).view(sizes);
}

ImageSize size_with_shorter_side(const ImageSize& size, int64_t shorter) {
  if (size.height <= size.width) return {shorter, shorter * size.width / size.height};
  return {shorter * size.height / size.width, shorter};
}

at::Tensor center_crop(const at::Tensor& images, const ImageSize& size) {
  at::Tensor padded = images;
  const int64_t missing_rows = std::max<int64_t>(0, size.height - images.size(-2));
  const int64_t missing_columns = std::max<int64_t>(0, size.width - images.size(-1));
  if (missing_rows + missing_columns > 0) {
    padded = at::constant_pad_nd(
        images, {missing_columns / 2, (missing_columns + 1) / 2, missing_rows / 2, (missing_rows + 1) / 2});
  }
  const int64_t top = rounded(static_cast<double>(padded.size(-2) - size.height) / 2);
  const int64_t left = rounded(static_cast<double>(padded.size(-1) - size.width) / 2);
  return padded.narrow(-2, top, size.height).narrow(-1, left, size.width);
}

ImageBox random_crop_box(const ImageSize& image, const RandomCropRange& range, at::Generator& generator) {
  auto* random = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard lock(random->mutex_);
  const auto between = [random](double low, double high) {
    at::uniform_real_distribution<double> draw(low, high);
    return draw(random);
  };
  const auto place = [&](int64_t free) {  // 0 … free
    return std::min(free, static_cast<int64_t>(between(0, static_cast<double>(free + 1))));
  };
  const double area = static_cast<double>(image.height) * static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * between(range.min_scale, range.max_scale);
    const double ratio = std::exp(between(std::log(range.min_ratio), std::log(range.max_ratio)));
    const int64_t width = rounded(std::sqrt(wanted * ratio)), height = rounded(std::sqrt(wanted / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int64_t top = place(image.height - height);
    return {top, place(image.width - width), height, width};
  }
  return middle_box(image, range);
}

namespace {

Batch named_images(const at::Tensor& x, const at::Tensor& y) {
  static const BatchNames names{"images", "labels"}, unlabelled{"images"};
  return y.defined() ? Batch({x, y}, names) : Batch({x}, unlabelled);
}

}  // namespace

ColourScale colour_scale(const std::vector<double>& mean, const std::vector<double>& deviation) {
  ColourScale scale;
  std::copy_n(mean.begin(), 3, scale.mean.begin());
  std::copy_n(deviation.begin(), 3, scale.deviation.begin());
  return scale;
}

Batch image_batch(const std::vector<Batch>& samples, const ColourScale& scale) {
  std::vector<const Batch*> kept;
  for (const Batch& sample : samples) {
    if (!sample.empty()) kept.push_back(&sample);
  }
  if (kept.empty()) throw DataError("image_batch: no image of the batch can be read. Repair the files or remove them.");
  const at::Tensor& first = (*kept[0])[0];
  const auto count = static_cast<int64_t>(kept.size());
  for (const Batch* sample : kept) check_image((*sample)[0], first);
  const at::Tensor x = empty_batch({count, 3, first.size(1), first.size(2)}, at::TensorOptions().dtype(at::kFloat));
  const bool has_labels = kept[0]->count() > 1;
  const at::Tensor y = has_labels ? empty_batch({count}, at::TensorOptions().dtype(at::kLong)) : at::Tensor();
  const ColourTable table = table_of(scale);
  for (int64_t i = 0; i < count; ++i) {
    const Batch& sample = *kept[static_cast<size_t>(i)];
    const bool flip = sample.count() > 2 && *sample[2].const_data_ptr<bool>();
    write_image(sample[0], flip, table, x.mutable_data_ptr<float>() + i * first.numel());
    if (has_labels) y.mutable_data_ptr<int64_t>()[i] = *sample[1].const_data_ptr<int64_t>();
  }
  return named_images(x, y);
}

at::Tensor read_image(const std::string& path, const ImageView& view, at::Generator& generator) {
  return read_image(*open_image(path, view.max_pixels), path, view, generator);
}

at::Tensor read_image(ImageDecoder& image, const std::string& name, const ImageView& view, at::Generator& generator) {
  const ImageSize all = image.size();
  const ImageBox whole{0, 0, all.height, all.width};
  const ImageSize result{view.size, view.size};
  switch (view.crop) {
    case ImageCrop::random: return decode_to(image, random_crop_box(all, view.range, generator), result, view);
    case ImageCrop::center: {
      const ImageSize resized = view.shorter_side > 0 ? size_with_shorter_side(all, view.shorter_side) : all;
      check_resized(name, resized, view);
      return center_crop(decode_to(image, whole, resized, view), result);
    }
    default: return view.size > 0 ? decode_to(image, whole, result, view) : image.decode();
  }
}

at::Tensor view_image(const at::Tensor& image, const std::string& name, const ImageView& view,
                      at::Generator& generator) {
  PixelImage pixels(image);
  return read_image(pixels, name, view, generator);
}

}  // namespace levin
