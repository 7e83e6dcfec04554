#include "levin/core/duration.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "levin/core/error.h"

namespace levin {

namespace {

[[noreturn]] void bad_duration(const std::string& text) {
  throw Error("\"" + text + "\" is not a duration. Write DD:HH:MM:SS (00:12:00:00) or numbers with units: 12h, 90min, 1h30m, 45s.");
}

double unit_seconds(const std::string& unit) {
  if (unit == "d") return 86400;
  if (unit == "h") return 3600;
  if (unit == "m" || unit == "min") return 60;
  if (unit == "s") return 1;
  if (unit == "ms") return 1e-3;
  return 0;
}

Seconds clock_duration(const std::string& text) {
  int64_t days = 0, hours = 0, minutes = 0, seconds = 0;
  int used = 0;
  const int found = std::sscanf(text.c_str(), "%ld:%ld:%ld:%ld%n", &days, &hours, &minutes, &seconds, &used);
  const bool whole = found == 4 && used == static_cast<int>(text.size());
  if (!whole || days < 0 || hours < 0 || minutes < 0 || seconds < 0) bad_duration(text);
  return Seconds(static_cast<double>(((days * 24 + hours) * 60 + minutes) * 60 + seconds));
}

}  // namespace

Seconds parse_duration(const std::string& text) {
  if (text.find(':') != std::string::npos) return clock_duration(text);
  double total = 0;
  size_t at = 0;
  while (at < text.size()) {
    char* end = nullptr;
    const double amount = std::strtod(text.c_str() + at, &end);
    const size_t unit_at = static_cast<size_t>(end - text.c_str());
    size_t unit_end = unit_at;
    while (unit_end < text.size() && std::isalpha(static_cast<unsigned char>(text[unit_end]))) ++unit_end;
    const double unit = unit_seconds(text.substr(unit_at, unit_end - unit_at));
    if (unit_at == at || unit == 0 || amount < 0 || !std::isfinite(amount)) bad_duration(text);
    total += amount * unit;
    at = text.find_first_not_of(' ', unit_end);
    if (at == std::string::npos) break;
  }
  if (text.empty()) bad_duration(text);
  return Seconds(total);
}

std::string duration_text(Seconds span) {
  const auto whole = static_cast<int64_t>(std::llround(span.count()));
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%02ld:%02ld:%02ld:%02ld", whole / 86400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
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

bool ValueType<Seconds>::read(const ConfigNode& node, Seconds& value, const std::string& path, Problems& problems) {
  if (!node.is_scalar()) return detail::expected("a duration such as \"00:12:00:00\" or \"90min\"", node, path, problems);
  try {
    value = parse_duration(node.text);
  } catch (const Error& error) {
    problems.add(node.mark, path, error.what());
    return false;
  }
  return true;
}

}  // namespace levin
