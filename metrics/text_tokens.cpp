#include "levin/metrics/text_tokens.h"

#include <utf8proc.h>

#include <algorithm>

namespace levin::metrics {

namespace {

// The code point at `at`, and its length in bytes; a length of 0 if the bytes are not UTF-8.
struct CodePoint {
  utf8proc_int32_t value = -1;
  size_t length = 0;
};

CodePoint code_point_at(std::string_view text, size_t at) {
  CodePoint point;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &point.value);
  if (length > 0) point.length = static_cast<size_t>(length);
  return point;
}

// White space as in Python's str.isspace().
bool is_space(utf8proc_int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  const auto category = utf8proc_category(c);
  return c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

}  // namespace

std::vector<std::string_view> split_at_spaces(std::string_view text) {
  std::vector<std::string_view> words;
  size_t start = 0;
  size_t at = 0;
  const auto end_word = [&] {
    if (at > start) words.push_back(text.substr(start, at - start));
  };
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    if (point.length > 0 && is_space(point.value)) {
      end_word();
      start = at + point.length;
    }
    at += std::max<size_t>(1, point.length);
  }
  end_word();
  return words;
}

std::vector<std::string> alphanumeric_words(std::string_view text) {
  std::vector<std::string> words(1);
  const auto end_word = [&] {
    if (!words.back().empty()) words.emplace_back();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      words.back() += c;
    } else if (c >= 'A' && c <= 'Z') {
      words.back() += static_cast<char>(c - 'A' + 'a');
    } else if (text.substr(at, 3) == "\xE2\x84\xAA") {  // the Kelvin sign, whose lower case is k
      words.back() += 'k';
      at += 2;
    } else if (text.substr(at, 2) == "\xC4\xB0") {  // I with a dot above: its lower case is i and a combining dot
      words.back() += 'i';
      at += 1;
      end_word();
    } else {
      end_word();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    points += point.length > 0 ? static_cast<char32_t>(point.value) : 0xDC00U + static_cast<unsigned char>(text[at]);
    at += std::max<size_t>(1, point.length);
  }
  return points;
}

}  // namespace levin::metrics
