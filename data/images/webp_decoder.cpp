#include <ATen/ops/empty.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "levin/data/images/image_decoder.h"

namespace levin {

namespace {

const char* cause_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY: return "there is not enough memory for it";
    case VP8_STATUS_NOT_ENOUGH_DATA: return "the file ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses a feature that libwebp does not know";
    default: return "libwebp cannot read it";
  }
}

struct AnimationDeleter {
  void operator()(WebPAnimDecoder* animation) const { WebPAnimDecoderDelete(animation); }
};

class WebpDecoder final : public ImageDecoder {
 public:
  WebpDecoder(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {
    const VP8StatusCode status = WebPGetFeatures(data(), bytes_.size(), &features_);
    if (status != VP8_STATUS_OK) detail::fail_damaged(path_, cause_of(status));
  }

  [[nodiscard]] ImageSize size() const override { return {features_.height, features_.width}; }

  [[nodiscard]] at::Tensor decode(const ImageBox& box, const ImageSize& /*at_least*/) override {
    const at::Tensor pixels = features_.has_animation != 0 ? first_of_animation(box) : part(box);
    return pixels.permute({2, 0, 1});
  }

 private:
  [[nodiscard]] const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes_.data()); }

  // Rows below the box are not decoded. Two more pixels on each side, where there are any, because the colours of a
  // pixel are mixed with its neighbours'; libwebp cuts at even numbers.
  [[nodiscard]] at::Tensor part(const ImageBox& box) const {
    const int64_t top = std::max<int64_t>(0, box.top - 2) & ~int64_t{1};
    const int64_t left = std::max<int64_t>(0, box.left - 2) & ~int64_t{1};
    const int64_t height = std::min<int64_t>(features_.height, box.top + box.height + 2) - top;
    const int64_t width = std::min<int64_t>(features_.width, box.left + box.width + 2) - left;
    at::Tensor pixels = at::empty({height, width, 3}, at::TensorOptions().dtype(at::kByte));
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0) detail::fail_damaged(path_, "libwebp cannot be started");
    config.options.use_cropping = 1;
    config.options.crop_top = static_cast<int>(top);
    config.options.crop_left = static_cast<int>(left);
    config.options.crop_height = static_cast<int>(height);
    config.options.crop_width = static_cast<int>(width);
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {.rgba = pixels.mutable_data_ptr<uint8_t>(),
                            .stride = static_cast<int>(3 * width),
                            .size = static_cast<size_t>(pixels.numel())};
    const VP8StatusCode status = WebPDecode(data(), bytes_.size(), &config);
    if (status != VP8_STATUS_OK) detail::fail_damaged(path_, cause_of(status));
    return pixels.narrow(0, box.top - top, box.height).narrow(1, box.left - left, box.width);
  }

  [[nodiscard]] at::Tensor first_of_animation(const ImageBox& box) const {
    const WebPData file{data(), bytes_.size()};
    const std::unique_ptr<WebPAnimDecoder, AnimationDeleter> animation(WebPAnimDecoderNew(&file, nullptr));
    uint8_t* canvas = nullptr;  // RGBA
    int milliseconds = 0;
    if (animation == nullptr || WebPAnimDecoderGetNext(animation.get(), &canvas, &milliseconds) == 0) {
      detail::fail_damaged(path_, "the first image of the animation cannot be read");
    }
    at::Tensor pixels = at::empty({box.height, box.width, 3}, at::TensorOptions().dtype(at::kByte));
    auto* to = pixels.mutable_data_ptr<uint8_t>();
    for (int64_t y = box.top; y < box.top + box.height; ++y) {
      const uint8_t* from = canvas + 4 * (y * features_.width + box.left);
      for (int64_t x = 0; x < box.width; ++x, from += 4, to += 3) std::copy_n(from, 3, to);
    }
    return pixels;
  }

  std::string path_;
  std::string_view bytes_;
  WebPBitstreamFeatures features_ = {};
};

}  // namespace

namespace detail {

std::unique_ptr<ImageDecoder> open_webp(std::string path, std::string_view bytes, int64_t max_pixels) {
  auto decoder = std::make_unique<WebpDecoder>(path, bytes);
  check_pixels(path, decoder->size(), max_pixels);
  return decoder;
}

}  // namespace detail

}  // namespace levin
