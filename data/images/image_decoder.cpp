#include "levin/data/images/image_decoder.h"

#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

// A compressed image of the most pixels that are allowed is smaller by far.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

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
  return open_image(path, image_bytes(path), max_pixels);
}

std::unique_ptr<ImageDecoder> open_image(const std::string& name, std::string bytes, int64_t max_pixels) {
  if (bytes.empty()) throw DataError(name + ": the file is empty, expected an image. Replace the file or remove it.");
  if (bytes.starts_with("\xFF\xD8")) return detail::open_jpeg(name, std::move(bytes), max_pixels);
  if (bytes.starts_with("\x89PNG")) return detail::open_png(name, std::move(bytes), max_pixels);
  throw DataError(name + ": expected a JPEG or PNG image, saw a file that begins with \"" + cut_text(bytes, 8) +
                  "\". Convert the image or remove the file.");
}

}  // namespace levin
