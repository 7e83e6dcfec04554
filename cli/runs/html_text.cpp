#include "levin/cli/runs/html_text.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "levin/core/utf8.h"

namespace levin {

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : printable_text(text)) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string html_code(std::string_view text) {
  return "<code>" + html_text(text) + "</code>";
}

std::string script_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable_text(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\') {
      std::array<char, 8> escape = {};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", byte);
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string script_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 40> text = {};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::string grouped_number(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3 + (value < 0 ? 1U : 0U);) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace levin
