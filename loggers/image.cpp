#include "levin/loggers/image.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/process/parts.h"
#include "levin/core/process/shared_library.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

constexpr int64_t kMaxColumns = 8;
constexpr int64_t kGap = 2;

uint8_t sample_of(uint8_t value) {
  return value;
}

uint8_t sample_of(float value) {
  return static_cast<uint8_t>(std::lround(std::clamp(value >= 0 ? value : 0.0F, 0.0F, 1.0F) * 255.0F));
}

// Copies one image (C, H, W) into the grid.
template <class T>
void place(const T* from, int64_t height, int64_t width, int64_t top, int64_t left, LogImage& whole) {
  const int64_t channels = whole.channels;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      uint8_t* to = whole.samples.data() + ((top + y) * whole.width + left) * channels + c;
      for (int64_t x = 0; x < width; ++x, to += channels) *to = sample_of(*from++);
    }
  }
}

template <class T>
LogImage grid_of(const at::Tensor& batch) {
  const int64_t count = batch.size(0);
  const int64_t height = batch.size(2);
  const int64_t width = batch.size(3);
  const int64_t columns = std::min(count, kMaxColumns);
  const int64_t rows = (count + columns - 1) / columns;
  LogImage whole{.height = rows * (height + kGap) - kGap, .width = columns * (width + kGap) - kGap};
  whole.channels = batch.size(1);
  whole.samples.resize(static_cast<size_t>(whole.height * whole.width * whole.channels));
  const T* from = batch.const_data_ptr<T>();
  for (int64_t k = 0; k < count; ++k, from += whole.channels * height * width) {
    place(from, height, width, k / columns * (height + kGap), k % columns * (width + kGap), whole);
  }
  return whole;
}

std::string extent(const LogImage& image) {
  return "(" + std::to_string(image.height) + ", " + std::to_string(image.width) + ", " +
         std::to_string(image.channels) + ")";
}

void check_image(const LogImage& image) {
  constexpr int64_t most = 1 << 20;
  if (image.channels != 1 && image.channels != 3 && image.channels != 4) {
    throw Error("png_of: an image has 1 channel (grey), 3 (red, green, blue) or 4 (with alpha), got " +
                std::to_string(image.channels) + ".");
  }
  if (image.height < 1 || image.width < 1 || image.height > most || image.width > most) {
    throw Error("png_of: height and width of an image must be 1 to " + std::to_string(most) + ", got " + extent(image) +
                ".");
  }
  if (image.samples.size() != static_cast<uint64_t>(image.height * image.width * image.channels)) {
    throw Error("png_of: an image of " + extent(image) + " has " +
                std::to_string(image.height * image.width * image.channels) + " samples, got " +
                std::to_string(image.samples.size()) + ".");
  }
}

}  // namespace

LogImage image_of(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error("image_of: the tensor is undefined.");
  const int64_t dims = tensor.dim();
  const int64_t channels = dims == 2 ? 1 : dims == 3 || dims == 4 ? tensor.size(-3) : 0;
  if (channels != 1 && channels != 3 && channels != 4) {
    throw Error(
        "image_of: expected a tensor (height, width), (channels, height, width) or (batch, channels, height, "
        "width) with 1, 3 or 4 channels, got " +
        shape_text(tensor.sizes()) + ".");
  }
  if (tensor.numel() == 0) throw Error("image_of: the tensor " + shape_text(tensor.sizes()) + " has no pixels.");
  const bool bytes = tensor.scalar_type() == at::kByte;
  if (!bytes && !tensor.is_floating_point()) {
    throw Error("image_of: expected uint8, or floating-point numbers from 0 to 1, got " +
                std::string(c10::toString(tensor.scalar_type())) + ". Convert it, e.g. .to(at::kByte).");
  }
  const at::Tensor values = tensor.detach().to(at::kCPU, bytes ? at::kByte : at::kFloat).contiguous();
  const at::Tensor batch = values.reshape({dims == 4 ? tensor.size(0) : 1, channels, tensor.size(-2), tensor.size(-1)});
  return bytes ? grid_of<uint8_t>(batch) : grid_of<float>(batch);
}

std::string png_of(const LogImage& image) {
  check_image(image);
  void (*encode)(const LogImage&, std::string&) = nullptr;
  open_part("images", "log_image: the PNG encoder").find(encode, "levin_encode_png");
  std::string bytes;
  encode(image, bytes);
  return bytes;
}

}  // namespace levin
