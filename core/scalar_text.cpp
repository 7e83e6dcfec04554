#include "levin/core/scalar_text.h"

#include <charconv>
#include <limits>

namespace levin {

namespace {

// Decimal digits only: no leading zeros (010 is octal for some readers, ten for others), no 0x, no 1_000.
bool has_plain_digits(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9')) return false;
  return text.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
}

bool special_double(const std::string& text, double& value) {
  if (text == ".inf" || text == "+.inf" || text == ".Inf" || text == "+.Inf" || text == ".INF" || text == "+.INF" ||
      text == "inf" || text == "Infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (text == "-.inf" || text == "-.Inf" || text == "-.INF" || text == "-inf" || text == "-Infinity") {
    value = -std::numeric_limits<double>::infinity();
  } else if (text == ".nan" || text == ".NaN" || text == ".NAN" || text == "nan" || text == "NaN") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    return false;
  }
  return true;
}

template <class Number>
bool whole_number_text(std::string_view text, Number& value) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return false;  // from_chars would take "+-5" for -5
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

}  // namespace

namespace detail {

bool parse_int(const std::string& text, int64_t& value) {
  return has_plain_digits(text) && whole_number_text(text, value);
}

bool parse_double(const std::string& text, double& value) {
  if (special_double(text, value)) return true;
  return has_plain_digits(text) && whole_number_text(text, value);
}

bool parse_bool(const std::string& text, bool& value) {
  const bool yes = text == "true" || text == "True" || text == "TRUE";
  const bool no = text == "false" || text == "False" || text == "FALSE";
  value = yes;
  return yes || no;
}

}  // namespace detail

bool reads_as_string(const std::string& text) {
  if (text.empty() || text == "null" || text == "Null" || text == "NULL" || text == "~") return false;
  bool flag = false;
  double number = 0;
  return !detail::parse_bool(text, flag) && !detail::parse_double(text, number);
}

}  // namespace levin
