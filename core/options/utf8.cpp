#include "levin/core/options/utf8.h"

#include <algorithm>

namespace levin {

size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return length;
}

namespace {

unsigned code_point(std::string_view text, size_t at, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (length == 1) return byte(0);
  unsigned code = byte(0) & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3fu);
  return code;
}

// In addition to control characters: marks that change the text direction, break lines or are invisible.
bool misleads(unsigned code) {
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string hex_text(unsigned number, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

}  // namespace

std::string terminal_escape(std::string_view text, size_t at) {
  const size_t length = utf8_length(text, at);
  if (length == 0) return "\\x" + hex_text(static_cast<unsigned char>(text[at]), 2);
  const unsigned code = code_point(text, at, length);
  if (code < 0x20 || code == 0x7f) return "\\x" + hex_text(code, 2);
  if ((code >= 0x80 && code < 0xa0) || misleads(code)) return "\\u" + hex_text(code, 4);
  return "";
}

bool has_control_character(std::string_view text) {
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, utf8_length(text, at))) {
    if (!terminal_escape(text, at).empty()) return true;
  }
  return false;
}

std::string printable_text(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, utf8_length(text, at));
    const std::string escape = text[at] == '\n' || text[at] == '\t' ? "" : terminal_escape(text, at);
    shown += escape.empty() ? text.substr(at, length) : escape;
    at += length;
  }
  return shown;
}

}  // namespace levin
