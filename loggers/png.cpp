// Encodes PNG files; in the part levin_images, which png_of() of image.h opens.
#include <png.h>

#include <string>

#include "levin/core/options/error.h"
#include "levin/loggers/log_values.h"

extern "C" void levin_encode_png(const levin::LogImage& image, std::string& bytes) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  header.flags = PNG_IMAGE_FLAG_FAST;
  bytes.assign(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, image.samples.data(), 0, nullptr) == 0) {
    throw levin::Error("png_of: libpng: " + std::string(header.message) + ".");
  }
  bytes.resize(size);
}
