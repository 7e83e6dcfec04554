#include "levin/data/images/image_decoder.h"

#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

// A compressed image of the most pixels that are allowed is smaller by far.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

// An image that keeps the bytes of its file.
class FileImage final : public ImageDecoder {
 public:
  FileImage(const std::string& path, std::string bytes, int64_t max_pixels)
      : bytes_(std::move(bytes)), image_(open_image(path, std::string_view(bytes_), max_pixels)) {}
  [[nodiscard]] ImageSize size() const override { return image_->size(); }
  [[nodiscard]] at::Tensor decode(const ImageBox& box, const ImageSize& at_least) override {
    return image_->decode(box, at_least);
  }

 private:
  std::string bytes_;
  std::unique_ptr<ImageDecoder> image_;
};

std::string image_bytes(const std::string& path) {
  try {
    return read_file(path, kMaxImageBytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

}  // namespace

namespace detail {

void check_pixels(const std::string& path, const ImageSize& size, int64_t max_pixels) {
  if (size.height < 1 || size.width < 1) fail_damaged(path, "it has no pixels");
  if (size.height <= max_pixels / size.width) return;
  throw DataError(path + ": the image has " + std::to_string(size.width) + " x " + std::to_string(size.height) +
                  " pixels, more than the " + std::to_string(max_pixels) +
                  " allowed. Make it smaller, or allow more with max_pixels if you trust the file.");
}

void fail_damaged(const std::string& path, const std::string& cause) {
  throw DataError(path + ": the image is damaged: " + cause + ". Replace the file or remove it.");
}

}  // namespace detail

std::unique_ptr<ImageDecoder> open_image(const std::string& path, int64_t max_pixels) {
  return std::make_unique<FileImage>(path, image_bytes(path), max_pixels);
}

std::unique_ptr<ImageDecoder> open_image(const std::string& name, std::string_view bytes, int64_t max_pixels) {
  if (bytes.empty()) throw DataError(name + ": the file is empty, expected an image. Replace the file or remove it.");
  if (bytes.starts_with("\xFF\xD8")) return detail::open_jpeg(name, bytes, max_pixels);
  if (bytes.starts_with("\x89PNG")) return detail::open_png(name, bytes, max_pixels);
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) {
    return detail::open_webp(name, bytes, max_pixels);
  }
  throw DataError(name + ": expected a JPEG, PNG or WebP image, saw a file that begins with \"" +
                  cut_text(std::string(bytes.substr(0, 16)), 8) + "\". Convert the image or remove the file.");
}

}  // namespace levin
