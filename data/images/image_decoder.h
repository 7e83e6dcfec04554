// Compressed images as pixels: JPEG, PNG and WebP, told apart by their first bytes, as torchvision's PIL does.
//
//   auto decoder = levin::open_image("cat.jpg");
//   at::Tensor pixels = decoder->decode();   // (3, height, width) uint8
//
// Every kind of image becomes RGB as by PIL's convert("RGB"): grey is repeated, palettes are looked up, alpha is
// dropped, 16 bits keep their upper 8, CMYK is converted without a colour profile, and of an animation there is the
// first image. An orientation in EXIF data is ignored, as torchvision ignores it. A decoder belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace levin {

/// Height and width in pixels.
struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// A rectangle, in pixels from the top left corner of an image.
struct ImageBox {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  friend bool operator==(const ImageBox&, const ImageBox&) = default;
};

/// Images with more pixels are refused: a file of a few bytes can claim to hold 2^32 of them.
constexpr int64_t kMaxPixels = 100'000'000;

/// An image whose header has been read, and whose pixels are decoded once. open_image() makes it.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  /// Returns the size of the whole image in pixels.
  [[nodiscard]] virtual ImageSize size() const = 0;

  /// Returns the pixels of `box`: (3, H, W) uint8, a view of memory in the order (H, W, 3). A JPEG is decoded at a
  /// half, a quarter or an eighth of its size, which takes less time, if the box is then still not smaller than
  /// `at_least` in either direction; an empty `at_least` means the full size. Only once. Throws DataError naming file,
  /// cause and remedy if the file is damaged or ends too early.
  [[nodiscard]] virtual at::Tensor decode(const ImageBox& box, const ImageSize& at_least) = 0;

  /// Returns the whole image at its full size.
  [[nodiscard]] at::Tensor decode() {
    const ImageSize all = size();
    return decode({0, 0, all.height, all.width}, {});
  }
};

/// Reads the file and its header. Throws DataError naming file, cause and remedy if it cannot be read, is not JPEG,
/// PNG or WebP, is damaged or has more than `max_pixels`.
[[nodiscard]] std::unique_ptr<ImageDecoder> open_image(const std::string& path, int64_t max_pixels = kMaxPixels);

/// Same for an image in memory, which must live as long as the decoder; `name` names it in errors.
[[nodiscard]] std::unique_ptr<ImageDecoder> open_image(const std::string& name, std::string_view bytes,
                                                       int64_t max_pixels);

namespace detail {

/// Return a decoder of `bytes`, the contents of the file `path`. Throw as open_image() does.
[[nodiscard]] std::unique_ptr<ImageDecoder> open_jpeg(std::string path, std::string_view bytes, int64_t max_pixels);
[[nodiscard]] std::unique_ptr<ImageDecoder> open_png(std::string path, std::string_view bytes, int64_t max_pixels);
[[nodiscard]] std::unique_ptr<ImageDecoder> open_webp(std::string path, std::string_view bytes, int64_t max_pixels);

/// Throws DataError if the image has no pixels or too many.
void check_pixels(const std::string& path, const ImageSize& size, int64_t max_pixels);
/// Throws DataError: the file is damaged.
[[noreturn]] void fail_damaged(const std::string& path, const std::string& cause);

}  // namespace detail

}  // namespace levin
