#include "levin/metrics/text_tokens.h"

#include "levin/core/utf8.h"

namespace levin::metrics {

namespace {

char32_t code_point_at(std::string_view text, size_t at, size_t length) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + k])); };
  switch (length) {
    case 1: return byte(0);
    case 2: return ((byte(0) & 0x1FU) << 6U) | (byte(1) & 0x3FU);
    case 3: return ((byte(0) & 0x0FU) << 12U) | ((byte(1) & 0x3FU) << 6U) | (byte(2) & 0x3FU);
    default:
      return ((byte(0) & 0x07U) << 18U) | ((byte(1) & 0x3FU) << 12U) | ((byte(2) & 0x3FU) << 6U) | (byte(3) & 0x3FU);
  }
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
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
    const bool is_ascii = static_cast<unsigned char>(text[at]) < 0x80;
    const size_t length = is_ascii ? 1 : utf8_length(text, at);
    if (length > 0 && is_space(code_point_at(text, at, length))) {
      end_word();
      start = at + length;
    }
    at += length > 0 ? length : 1;
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
    const size_t length = utf8_length(text, at);
    if (length > 0) {
      points += code_point_at(text, at, length);
      at += length;
    } else {
      points += 0xDC00U + static_cast<unsigned char>(text[at]);
      ++at;
    }
  }
  return points;
}

}  // namespace levin::metrics
