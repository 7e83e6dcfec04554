#include "levin/core/duration.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "levin/core/error.h"

namespace levin {

namespace {

[[noreturn]] void bad_duration(const std::string& text) {
  throw Error("\"" + cut_text(text) +
              "\" is not a duration. Write DD:HH:MM:SS (00:12:00:00) or numbers with units: 12h, 90min, 1h30m, 45s.");
}

double unit_seconds(const std::string& unit) {
  if (unit == "d") return 86400;
  if (unit == "h") return 3600;
  if (unit == "m" || unit == "min") return 60;
  if (unit == "s") return 1;
  if (unit == "ms") return 1e-3;
  return 0;
}

// DD:HH:MM:SS: four groups of one to six digits.
Seconds clock_duration(const std::string& text) {
  static constexpr std::array group_seconds{86400.0, 3600.0, 60.0, 1.0};  // seconds in each group's unit
  double total = 0;
  size_t at = 0;
  for (size_t group = 0; group < group_seconds.size(); ++group) {
    const size_t end = group + 1 < group_seconds.size() ? text.find(':', at) : text.size();
    if (end == std::string::npos || end == at || end - at > 6) bad_duration(text);
    const std::string digits = text.substr(at, end - at);
    if (digits.find_first_not_of("0123456789") != std::string::npos) bad_duration(text);
    total += group_seconds[group] * std::stoi(digits);
    at = end + 1;
  }
  return Seconds(total);
}

constexpr double kLongestSeconds = 1e11;  // some 3000 years: whole seconds stay exact, and nothing overflows

}  // namespace

Seconds parse_duration(const std::string& text) {
  if (text.find(':') != std::string::npos) return clock_duration(text);
  double total = 0;
  size_t at = 0;
  while (at < text.size()) {
    double amount = 0;  // from_chars: no locale, no hexadecimal, no sign but "-"
    const auto [end, code] =
        std::from_chars(text.data() + at, text.data() + text.size(), amount, std::chars_format::fixed);
    if (code != std::errc{}) bad_duration(text);
    const auto unit_at = static_cast<size_t>(end - text.data());
    size_t unit_end = unit_at;
    while (unit_end < text.size() && std::isalpha(static_cast<unsigned char>(text[unit_end]))) ++unit_end;
    const double unit = unit_seconds(text.substr(unit_at, unit_end - unit_at));
    if (unit == 0 || !(amount >= 0) || amount * unit > kLongestSeconds) bad_duration(text);
    total += amount * unit;
    at = text.find_first_not_of(' ', unit_end);
    if (at == std::string::npos) break;  // at the end, or only spaces follow
  }
  if (text.empty()) bad_duration(text);
  return Seconds(total);
}

std::string duration_text(Seconds span) {
  const auto whole = static_cast<int64_t>(std::llround(span.count()));
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%02ld:%02ld:%02ld:%02ld", whole / 86400, whole / 3600 % 24, whole / 60 % 60,
                whole % 60);
  return buffer;
}

std::string readable_duration(Seconds span) {
  const double seconds = span.count();
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  char buffer[64];
  if (seconds < 0.9995) {
    std::snprintf(buffer, sizeof buffer, "%.0f ms", seconds * 1000);
  } else if (seconds < 59.95) {
    std::snprintf(buffer, sizeof buffer, "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(buffer, sizeof buffer, "%ld min %02ld s", whole / 60, whole % 60);
  } else if (whole < 86400) {
    std::snprintf(buffer, sizeof buffer, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
  } else {
    std::snprintf(buffer, sizeof buffer, "%ld d %02ld h", whole / 86400, whole / 3600 % 24);
  }
  return buffer;
}

ConfigNode ValueType<Seconds>::write(Seconds value) {
  const double seconds = value.count();
  if (seconds == std::floor(seconds)) return ConfigNode::scalar(duration_text(value), true);
  char buffer[400];  // the longest double in fixed notation has some 330 characters
  auto* end = std::to_chars(buffer, buffer + sizeof buffer, seconds, std::chars_format::fixed).ptr;
  return ConfigNode::scalar(std::string(buffer, end) + "s", true);
}

bool ValueType<Seconds>::read(const ConfigNode& node, Seconds& value, const std::string& path, Problems& problems) {
  if (!node.is_scalar())
    return detail::expected("a duration such as \"00:12:00:00\" or \"90min\"", node, path, problems);
  try {
    value = parse_duration(node.text);
  } catch (const Error& error) {
    problems.add(node.mark, path, error.what());
    return false;
  }
  return true;
}

}  // namespace levin
