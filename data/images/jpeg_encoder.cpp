#include "levin/data/images/jpeg_encoder.h"

#include <csetjmp>
#include <cstdlib>

#include "levin/core/options/error.h"
#include "levin/data/images/jpeg_errors.h"

namespace levin {

namespace {

struct Encoding {
  jpeg_compress_struct info{};
  detail::JpegErrors errors{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type

  Encoding() = default;
  ~Encoding() {
    jpeg_destroy_compress(&info);
    std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg allocates with malloc()
  }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;
};

// `rows` has (height, width, 3) bytes. Creates no objects with destructors: libjpeg may jump over them. Returns false
// after an error.
bool encode(Encoding& encoding, const uint8_t* rows, int64_t height, int64_t width, int64_t quality) {
  if (setjmp(encoding.errors.back) != 0) return false;
  jpeg_compress_struct& info = encoding.info;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &encoding.bytes, &encoding.size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, static_cast<int>(quality), TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW lines[] = {const_cast<JSAMPROW>(rows + int64_t{3} * width * info.next_scanline)};
    jpeg_write_scanlines(&info, lines, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

std::string encode_jpeg(const at::Tensor& image, int64_t quality) {
  if (image.dim() != 3 || image.size(0) != 3 || image.scalar_type() != at::kByte || image.numel() == 0) {
    throw Error("encode_jpeg: expected an image (3, height, width) of uint8 with pixels in it.");
  }
  if (quality < 1 || quality > 100) {
    throw Error("encode_jpeg: the quality is from 1 to 100, got " + std::to_string(quality) + ".");
  }
  const at::Tensor rows = image.permute({1, 2, 0}).contiguous();
  Encoding encoding;
  encoding.info.err = jpeg_std_error(&encoding.errors.base);
  encoding.errors.base.error_exit = detail::leave_jpeg;
  if (!encode(encoding, rows.const_data_ptr<uint8_t>(), rows.size(0), rows.size(1), quality)) {
    throw Error(std::string("encode_jpeg: the image cannot be written as a JPEG: ") + encoding.errors.text.data() +
                ".");
  }
  return {reinterpret_cast<const char*>(encoding.bytes), encoding.size};
}

}  // namespace levin
