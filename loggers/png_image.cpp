#include "levin/loggers/png_image.h"

#include <png.h>

#include "levin/core/error.h"

namespace levin {

namespace {

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

std::string png_of(const LogImage& image) {
  check_image(image);
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  header.flags = PNG_IMAGE_FLAG_FAST;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, image.samples.data(), 0, nullptr) == 0) {
    throw Error("png_of: libpng: " + std::string(header.message) + ".");
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace levin
