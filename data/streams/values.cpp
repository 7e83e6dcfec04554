#include "levin/data/streams/values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <locale.h>

#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "levin/core/options/utf8.h"
#include "levin/data/files/npy.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/loading/sample_generator.h"

namespace levin::streams {

namespace {

constexpr size_t kMaxDimensions = 64;  // LibTorch's and NumPy's limit

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text = "(";
  for (size_t k = 0; k < sizes.size(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(sizes[k]);
  return text + ")";
}

template <class T>
at::Tensor scalar(T value, at::ScalarType type) {
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(type));
  std::memcpy(tensor.mutable_data_ptr(), &value, sizeof value);
  return tensor;
}

// The rest of the field without the white space around it, as Python's int() and float() ignore it.
std::string_view trimmed_number(FieldBytes& bytes) {
  constexpr std::string_view blanks = " \t\n\r\v\f";
  std::string_view text = bytes.take_rest();
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return "";
  text = text.substr(first, text.find_last_not_of(blanks) - first + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// A number that from_chars() calls too large or too small: infinity or 0, as in Python.
double extreme_number(std::string_view text) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(std::string(text).c_str(), nullptr, plain);
}

struct PilMode {
  std::string_view name;
  uint64_t channels;
};
constexpr PilMode kPilModes[] = {{"L", 1}, {"LA", 2}, {"RGB", 3}, {"RGBA", 4}, {"RGBX", 4}};

}  // namespace

at::Tensor array_of(FieldBytes& bytes, at::ScalarType type, const std::vector<int64_t>& sizes) {
  uint64_t count = c10::elementSize(type), strides = 1;  // a size of 0 counts as 1: strides are products too
  bool fits = sizes.size() <= kMaxDimensions;
  for (const int64_t size : sizes) {
    const auto wide = static_cast<uint64_t>(size);
    fits = fits && size >= 0 && !__builtin_mul_overflow(count, wide, &count) &&
           !__builtin_mul_overflow(strides, std::max<uint64_t>(wide, 1), &strides) && strides <= uint64_t{1} << 62;
  }
  if (!fits || count != bytes.left()) {
    bytes.fail("expected " + (fits ? count_of(static_cast<int64_t>(count), "byte") : "more than 2^62 values") +
               " for an array of shape " + cut_text(sizes_text(sizes)) + " and type " + c10::toString(type) +
               ", found " + count_of(static_cast<int64_t>(bytes.left()), "byte"));
  }
  at::Tensor values = at::empty(sizes, at::TensorOptions().dtype(type));
  if (count > 0) std::memcpy(values.mutable_data_ptr(), bytes.take_rest().data(), count);
  return with_clean_bools(std::move(values));
}

at::Tensor row_of(FieldBytes& bytes, at::ScalarType type) {
  const uint64_t item = c10::elementSize(type);
  if (bytes.left() % item != 0) {
    bytes.fail("expected values of " + count_of(static_cast<int64_t>(item), "byte") + " each, found " +
               count_of(static_cast<int64_t>(bytes.left()), "byte"));
  }
  return array_of(bytes, type, {static_cast<int64_t>(bytes.left() / item)});
}

at::Tensor scalar_of(int64_t value) {
  return scalar(value, at::kLong);
}
at::Tensor scalar_of(double value) {
  return scalar(value, at::kDouble);
}
at::Tensor scalar_of(bool value) {
  return scalar(value, at::kBool);
}

at::Tensor npy_of(FieldBytes& bytes) {
  const NpyHeader header = read_npy_header(bytes.where(), bytes.rest());
  (void)bytes.take(header.offset, "the header");
  return array_of(bytes, header.type, header.sizes);
}

std::string text_of(FieldBytes& bytes) {
  const std::string_view text = bytes.rest();
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      (void)bytes.take(at, "");
      bytes.fail("expected UTF-8, found the byte " + formatted("0x%02x", static_cast<unsigned char>(text[at])));
    }
    at += length;
  }
  return std::string(bytes.take_rest());
}

int64_t int_text_of(FieldBytes& bytes) {
  const std::string_view whole = bytes.rest(), text = trimmed_number(bytes);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
    bytes.refuse("the integer " + cut_text(std::string(text)) + " does not fit into 64 bits. Store it as a string.");
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    bytes.refuse("expected an integer, found \"" + cut_text(std::string(whole)) + "\". Store it as a string.");
  }
  return value;
}

double float_text_of(FieldBytes& bytes) {
  const std::string_view whole = bytes.rest(), text = trimmed_number(bytes);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = end == text.data() + text.size();
  if (error == std::errc::result_out_of_range && is_whole) return extreme_number(text);
  if (error != std::errc() || !is_whole || text.find('(') != std::string_view::npos) {  // "nan(1)" is C's, not Python's
    bytes.refuse("expected a number, found \"" + cut_text(std::string(whole)) + "\". Store it as a string.");
  }
  return value;
}

at::Tensor image_of(FieldBytes& bytes, const ImageView& view) {
  const std::string name = bytes.where();
  return read_image(*open_image(name, bytes.take_rest(), view.max_pixels), name, view, sample_generator());
}

at::Tensor part_of(const at::Tensor& array, const FieldBytes& bytes, const ImageView& view) {
  const bool is_image = array.dim() == 3 && array.size(0) == 3 && array.scalar_type() == at::kByte;
  if (!is_image || array.numel() == 0) return array;
  return view_image(array, bytes.where(), view, sample_generator());
}

at::Tensor raw_image_of(FieldBytes& bytes, const ImageView& view) {
  const std::string name = bytes.where();
  const uint64_t width = bytes.number<uint32_t>("the width"), height = bytes.number<uint32_t>("the height");
  const std::string_view mode = bytes.take(bytes.number<uint32_t>("the mode's length"), "the mode");
  const PilMode* found = nullptr;
  for (const PilMode& known : kPilModes) {
    if (known.name == mode) found = &known;
  }
  if (found == nullptr) {
    bytes.refuse("an image of PIL's mode \"" + cut_text(std::string(mode)) +
                 "\" cannot be read: expected L, LA, RGB, RGBA or RGBX. Store image.convert(\"RGB\").");
  }
  detail::check_pixels(bytes.where(), {static_cast<int64_t>(height), static_cast<int64_t>(width)}, view.max_pixels);
  FieldBytes pixels = bytes.part(width * height * found->channels, "pixels");
  bytes.expect_end();
  const std::string_view from = pixels.take_rest();
  at::Tensor image = at::empty({static_cast<int64_t>(height), static_cast<int64_t>(width), 3}, at::kByte);
  auto* to = image.mutable_data_ptr<uint8_t>();
  const uint64_t step = found->channels, second = step >= 3 ? 1 : 0, third = step >= 3 ? 2 : 0;
  for (uint64_t k = 0; k < width * height; ++k) {
    const char* pixel = from.data() + k * step;
    to[3 * k] = static_cast<uint8_t>(pixel[0]);
    to[3 * k + 1] = static_cast<uint8_t>(pixel[second]);
    to[3 * k + 2] = static_cast<uint8_t>(pixel[third]);
  }
  return view_image(image.permute({2, 0, 1}), name, view, sample_generator());  // memory in the order (H, W, 3)
}

}  // namespace levin::streams
