// libpng reports an error as libjpeg does: see jpeg_decoder.cpp.
#include <ATen/ops/empty.h>
#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/data/images/image_decoder.h"

namespace levin {

namespace {

// Of the text and the colour profiles that a file may hold; they are not used.
constexpr png_alloc_size_t kMaxChunkBytes = 8'000'000;

struct PngSession {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf back;
  std::array<char, 200> text = {};
  const char* next = nullptr;  // not yet read
  size_t left = 0;

  PngSession() = default;
  ~PngSession() { png_destroy_read_struct(&png, &info, nullptr); }
  PngSession(const PngSession&) = delete;
  PngSession& operator=(const PngSession&) = delete;
};

[[noreturn]] void leave_png(png_structp png, png_const_charp text) {
  auto* session = static_cast<PngSession*>(png_get_error_ptr(png));
  std::snprintf(session->text.data(), session->text.size(), "%s", text);
  std::longjmp(session->back, 1);
}

void ignore_warning(png_structp /*png*/, png_const_charp /*text*/) {}

void read_png(png_structp png, png_bytep to, size_t bytes) {
  auto* session = static_cast<PngSession*>(png_get_io_ptr(png));
  if (bytes > session->left) png_error(png, "the file ends too early");
  std::memcpy(to, session->next, bytes);
  session->next += bytes;
  session->left -= bytes;
}

class PngDecoder final : public ImageDecoder {
 public:
  PngDecoder(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {
    session_.next = bytes_.data();
    session_.left = bytes_.size();
    run([this] {
      session_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &session_, leave_png, ignore_warning);
      if (session_.png == nullptr) return;
      session_.info = png_create_info_struct(session_.png);
      if (session_.info == nullptr) return;
      png_set_read_fn(session_.png, &session_, read_png);
      png_set_user_limits(session_.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_pixels() limits their product
      png_set_chunk_malloc_max(session_.png, kMaxChunkBytes);
      png_read_info(session_.png, session_.info);
    });
    if (session_.info == nullptr) detail::fail_damaged(path_, "libpng cannot be started");
  }

  [[nodiscard]] ImageSize size() const override {
    return {static_cast<int64_t>(png_get_image_height(session_.png, session_.info)),
            static_cast<int64_t>(png_get_image_width(session_.png, session_.info))};
  }

  [[nodiscard]] at::Tensor decode(const ImageBox& box, const ImageSize& /*at_least*/) override {
    const ImageSize all = size();
    run([this] { convert_to_rgb(); });
    at::Tensor pixels = at::empty({all.height, all.width, 3}, at::TensorOptions().dtype(at::kByte));
    std::vector<png_bytep> rows(static_cast<size_t>(all.height));
    for (size_t y = 0; y < rows.size(); ++y) {
      rows[y] = pixels.mutable_data_ptr<uint8_t>() + y * static_cast<size_t>(3 * all.width);
    }
    if (png_get_rowbytes(session_.png, session_.info) != static_cast<size_t>(3 * all.width)) {
      detail::fail_damaged(path_, "the length of its rows differs from its header");
    }
    run([this, lines = rows.data()] {
      png_read_image(session_.png, lines);
      png_read_end(session_.png, nullptr);
    });
    return pixels.narrow(0, box.top, box.height).narrow(1, box.left, box.width).permute({2, 0, 1});
  }

 private:
  // Calls libpng. `step` creates no objects with destructors.
  template <class Step>
  void run(Step step) {
    static_assert(std::is_trivially_destructible_v<Step>);
    if (setjmp(session_.back) == 0) {
      step();
      return;
    }
    detail::fail_damaged(path_, session_.text.data());
  }

  void convert_to_rgb() {
    const int colour = png_get_color_type(session_.png, session_.info);
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(session_.png);
    if ((colour & PNG_COLOR_MASK_COLOR) == 0) {
      png_set_expand_gray_1_2_4_to_8(session_.png);
      png_set_gray_to_rgb(session_.png);
    }
    png_set_strip_16(session_.png);
    png_set_strip_alpha(session_.png);
    png_set_interlace_handling(session_.png);
    png_read_update_info(session_.png, session_.info);
  }

  std::string path_;
  std::string_view bytes_;
  PngSession session_;
};

}  // namespace

namespace detail {

std::unique_ptr<ImageDecoder> open_png(std::string path, std::string_view bytes, int64_t max_pixels) {
  auto decoder = std::make_unique<PngDecoder>(path, bytes);
  check_pixels(path, decoder->size(), max_pixels);
  return decoder;
}

}  // namespace detail

}  // namespace levin
