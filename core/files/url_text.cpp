#include "levin/core/files/url_text.h"

#include <charconv>
#include <string_view>

namespace levin {

std::string url_encoded(const std::string& text, const std::string& keep) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos || keep.find(c) != std::string::npos;
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += hex[byte >> 4];
      out += hex[byte & 15];
    }
  }
  return out;
}

std::string url_decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* first = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(first, first + 2, value, 16).ptr == first + 2) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace levin
