// Errors of libjpeg jump: see jpeg_errors.h, and `run`.
#include <ATen/ops/empty.h>
// jpeglib.h needs these.
#include <cstddef>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/data/images/image_decoder.h"
#include "levin/data/images/jpeg_errors.h"

namespace levin {

namespace {

// A progressive image repeats its pixels in every scan: without a limit, a small file can take minutes.
constexpr int kMaxScans = 200;

using detail::JpegErrors;
using detail::leave_jpeg;

// Handles what libjpeg calls a warning: it continues with grey or shifted pixels, unless bytes are merely left over.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA && info->err->msg_code != JWRN_ADOBE_XFORM &&
      info->err->msg_code != JWRN_JFIF_MAJOR) {
    leave_jpeg(info);
  }
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->text.data(), errors->text.size(), "it has more than %d scans", kMaxScans);
  std::longjmp(errors->back, 1);
}

// All bytes are there from the start, so a request for more means that the file is cut off.
boolean on_end(j_decompress_ptr info) {
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}
void on_skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) ERREXIT(info, JERR_INPUT_EOF);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}
void on_source(j_decompress_ptr /*info*/) {}

// PIL's rule: the four numbers are stored inverted, as Adobe's programs do, and black dims the other three.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      const int product = cmyk[4 * i + c] * cmyk[4 * i + 3] + 128;
      rgb[3 * i + c] = static_cast<uint8_t>(((product >> 8) + product) >> 8);  // product / 255, rounded
    }
  }
}

// What libjpeg allocates, freed also where a constructor throws.
struct JpegSession {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};

  JpegSession() = default;
  ~JpegSession() { jpeg_destroy_decompress(&info); }
  JpegSession(const JpegSession&) = delete;
  JpegSession& operator=(const JpegSession&) = delete;
};

class JpegDecoder final : public ImageDecoder {
 public:
  JpegDecoder(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {
    info_.err = jpeg_std_error(&session_.errors.base);
    session_.errors.base.error_exit = leave_jpeg;
    session_.errors.base.emit_message = on_message;
    run([this] {
      jpeg_create_decompress(&info_);
      session_.source = {.next_input_byte = reinterpret_cast<const JOCTET*>(bytes_.data()),
                         .bytes_in_buffer = bytes_.size(),
                         .init_source = on_source,
                         .fill_input_buffer = on_end,
                         .skip_input_data = on_skip,
                         .resync_to_restart = jpeg_resync_to_restart,
                         .term_source = on_source};
      session_.progress.progress_monitor = on_progress;
      info_.src = &session_.source;
      info_.progress = &session_.progress;
      jpeg_read_header(&info_, TRUE);
    });
  }

  [[nodiscard]] ImageSize size() const override {
    return {static_cast<int64_t>(info_.image_height), static_cast<int64_t>(info_.image_width)};
  }

  [[nodiscard]] at::Tensor decode(const ImageBox& box, const ImageSize& at_least) override {
    const int64_t eighths = eighths_for(box, at_least);
    const bool is_cmyk = info_.num_components == 4;
    info_.scale_num = static_cast<unsigned>(eighths);
    info_.scale_denom = 8;
    info_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    run([this] { jpeg_start_decompress(&info_); });
    const ImageBox wanted = reduced(box, eighths);
    const int64_t before = skip_to(wanted);
    at::Tensor pixels = at::empty({wanted.height, wanted.width, 3}, at::TensorOptions().dtype(at::kByte));
    auto* to = pixels.mutable_data_ptr<uint8_t>();
    std::vector<uint8_t> row(static_cast<size_t>(info_.output_width) * (is_cmyk ? 4 : 3));
    for (int64_t y = 0; y < wanted.height; ++y, to += 3 * wanted.width) {
      run([this, line = row.data()] {
        JSAMPROW lines[] = {line};
        jpeg_read_scanlines(&info_, lines, 1);
      });
      if (is_cmyk) {
        cmyk_to_rgb(row.data() + 4 * before, to, wanted.width);
      } else {
        std::memcpy(to, row.data() + 3 * before, static_cast<size_t>(3 * wanted.width));
      }
    }
    return pixels.permute({2, 0, 1});
  }

 private:
  // Calls libjpeg. `step` creates no objects with destructors.
  template <class Step>
  void run(Step step) {
    static_assert(std::is_trivially_destructible_v<Step>);
    if (setjmp(session_.errors.back) == 0) {
      step();
      return;
    }
    detail::fail_damaged(path_, session_.errors.text.data());
  }

  // Halves only: libjpeg-turbo has no vector code for the other eighths, which take longer than the full size.
  [[nodiscard]] static int64_t eighths_for(const ImageBox& box, const ImageSize& at_least) {
    if (at_least.height <= 0 || at_least.width <= 0) return 8;
    int64_t eighths = 8;
    while (eighths > 1 && box.height * eighths / 16 >= at_least.height && box.width * eighths / 16 >= at_least.width) {
      eighths /= 2;
    }
    return eighths;
  }

  // The box in the reduced image, to the nearest pixel; an edge of the image stays one.
  [[nodiscard]] ImageBox reduced(const ImageBox& box, int64_t eighths) const {
    const auto edge = [eighths](int64_t at, int64_t all, int64_t reduced_all) {
      return at == all ? reduced_all : std::min((at * eighths + 4) / 8, reduced_all);
    };
    const ImageSize all = size();
    const int64_t top = edge(box.top, all.height, info_.output_height);
    const int64_t left = edge(box.left, all.width, info_.output_width);
    return {top, left, edge(box.top + box.height, all.height, info_.output_height) - top,
            edge(box.left + box.width, all.width, info_.output_width) - left};
  }

  // Leaves out rows above the box and most columns next to it. Returns the number of columns that remain before it. Two
  // more on each side, where there are any, because the colours of a pixel are mixed with its neighbours'.
  int64_t skip_to(const ImageBox& box) {
    JDIMENSION first = static_cast<JDIMENSION>(std::max<int64_t>(0, box.left - 2));
    JDIMENSION count = static_cast<JDIMENSION>(std::min<int64_t>(info_.output_width, box.left + box.width + 2)) - first;
    if (count < info_.output_width) run([this, &first, &count] { jpeg_crop_scanline(&info_, &first, &count); });
    if (box.top > 0) run([this, top = box.top] { jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(top)); });
    return box.left - static_cast<int64_t>(first);
  }

  std::string path_;
  std::string_view bytes_;
  JpegSession session_;
  jpeg_decompress_struct& info_ = session_.info;
};

}  // namespace

namespace detail {

std::unique_ptr<ImageDecoder> open_jpeg(std::string path, std::string_view bytes, int64_t max_pixels) {
  auto decoder = std::make_unique<JpegDecoder>(path, bytes);
  check_pixels(path, decoder->size(), max_pixels);
  return decoder;
}

}  // namespace detail

}  // namespace levin
