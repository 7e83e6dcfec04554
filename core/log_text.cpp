#include "levin/core/log_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace levin::log::detail {

namespace {

template <class... How>
std::string converted(How... how) {
  std::array<char, 512> buffer;  // 1e308 with 60 digits after the point has 370
  const auto [end, code] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), how...);
  return code == std::errc() ? std::string(buffer.data(), end) : "?";
}

std::string number_digits(double value, bool is_float, const Spec& spec) {
  const auto format = spec.type == 'f'   ? std::chars_format::fixed
                      : spec.type == 'e' ? std::chars_format::scientific
                                         : std::chars_format::general;
  if (spec.precision >= 0) return converted(value, format, spec.precision);
  if (spec.type != '\0') return converted(value, format, 6);
  return is_float ? converted(static_cast<float>(value)) : converted(value);
}

int base_of(char type) {
  return type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
}

std::string integer_digits(uint64_t size, bool negative, const Spec& spec) {
  std::string digits = (negative ? "-" : "") + converted(size, base_of(spec.type));
  if (spec.type == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c; });
  }
  return digits;
}

std::string digits_of(const Argument& value, const Spec& spec) {
  const bool as_number = spec.type == 'f' || spec.type == 'e' || spec.type == 'g';
  if (value.kind == Kind::number) return number_digits(value.number, value.is_float, spec);
  if (value.kind == Kind::unsigned_integer) {
    return as_number ? number_digits(static_cast<double>(value.unsigned_integer), false, spec)
                     : integer_digits(value.unsigned_integer, false, spec);
  }
  if (as_number) return number_digits(static_cast<double>(value.integer), false, spec);
  const bool negative = value.integer < 0;
  const auto size = static_cast<uint64_t>(value.integer);
  return integer_digits(negative ? 0 - size : size, negative, spec);
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string first_characters(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at) {
    if ((text[at] & 0xc0) != 0x80 && seen++ == most) break;
  }
  return std::string(text.substr(0, at));
}

std::string aligned(std::string body, const Spec& spec, bool is_number) {
  const auto width = static_cast<size_t>(spec.width);
  const size_t has = characters(body);
  if (has >= width) return body;
  const size_t missing = width - has;
  const char align = spec.align != '\0' ? spec.align : is_number ? '>' : '<';
  if (is_number && spec.zeros && spec.align == '\0') {
    const size_t sign = body[0] == '-' || body[0] == '+' ? 1 : 0;
    return body.insert(sign, missing, '0');
  }
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  return std::string(before, spec.fill) + body + std::string(missing - before, spec.fill);
}

std::string text_of(const Argument& value, const Spec& spec) {
  const bool is_number =
      value.kind == Kind::number || value.kind == Kind::integer || value.kind == Kind::unsigned_integer;
  std::string body;
  if (is_number) {
    body = digits_of(value, spec);
    if (spec.plus && body[0] != '-') body.insert(0, "+");
  } else {
    if (value.kind == Kind::truth) body = value.integer != 0 ? "true" : "false";
    if (value.kind == Kind::character) body = std::string(1, static_cast<char>(value.integer));
    if (value.kind == Kind::text) body = value.text;
    if (spec.precision >= 0) body = first_characters(body, static_cast<size_t>(spec.precision));
  }
  return aligned(std::move(body), spec, is_number);
}

}  // namespace

std::string fill(std::string_view text, std::span<const Argument> values) {
  std::string result;
  size_t next = 0;
  walk(
      text, [&](std::string_view piece) { result += piece; },
      [&](std::string_view text_of_spec) -> const char* {
        if (next >= values.size()) return "";
        const Argument& value = values[next++];
        Spec spec;
        read_spec(text_of_spec, value.kind, spec);
        result += text_of(value, spec);
        return nullptr;
      });
  return result;
}

}  // namespace levin::log::detail
