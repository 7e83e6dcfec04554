#include "levin/core/options/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "levin/core/options/error.h"

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

struct Unit {
  const char* name;
  double bytes;
};

// Largest first: a size is written in the first that divides it.
constexpr std::array kBinaryUnits{Unit{"TiB", 1099511627776.0}, Unit{"GiB", 1073741824.0}, Unit{"MiB", 1048576.0},
                                  Unit{"KiB", 1024.0}};
constexpr std::array kDecimalUnits{Unit{"TB", 1e12}, Unit{"GB", 1e9}, Unit{"MB", 1e6},
                                   Unit{"kB", 1e3},  Unit{"KB", 1e3}, Unit{"B", 1}};

double unit_bytes(const std::string& name) {
  if (name.empty()) return 1;
  for (const Unit& unit : kBinaryUnits) {
    if (name == unit.name) return unit.bytes;
  }
  for (const Unit& unit : kDecimalUnits) {
    if (name == unit.name) return unit.bytes;
  }
  return 0;
}

std::string amount_text(double amount, int digits, const char* unit) {
  return formatted("%.*f %s", digits, amount, unit);
}

constexpr const char* kExamples =
    "Write 500ba (batches), 2ep (epochs), 30min or 00:00:30:00 (time), or 0.1dur (a "
    "fraction of the run).";

// Of multiples: 0.3 / 0.1 is a little less than 3.
constexpr double kRounding = 1e-9;

constexpr std::array kUnits{std::pair{"ba", PeriodUnit::batches}, std::pair{"ep", PeriodUnit::epochs},
                            std::pair{"dur", PeriodUnit::run}};

std::optional<std::pair<double, PeriodUnit>> counted_unit(const std::string& text) {
  double amount = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (code != std::errc{}) return std::nullopt;
  const std::string suffix(end, text.data() + text.size());
  for (const auto& [name, unit] : kUnits) {
    if (suffix == name) return std::pair{amount, unit};
  }
  return std::nullopt;
}

double seconds_in(const std::string& text) {
  try {
    return parse_duration(text).count();
  } catch (const Error&) {
    throw ConfigError("\"" + cut_text(text) + "\" is not a period. " + kExamples);
  }
}

void check(double amount, PeriodUnit unit, const std::string& text) {
  auto refuse = [&](const std::string& why) { throw ConfigError("\"" + cut_text(text) + "\": " + why); };
  if (!(amount > 0) || !std::isfinite(amount)) refuse(std::string("a period is above 0. ") + kExamples);
  if (unit == PeriodUnit::batches && amount != std::floor(amount))
    refuse("the number of batches is whole. Use 1ba or more, or a fraction of an epoch such as 0.5ep.");
  if (unit == PeriodUnit::epochs && amount > 1 && amount != std::floor(amount))
    refuse("a period of more than one epoch is a whole number of them. Use 1ep, 2ep, or a number of batches.");
  if (unit == PeriodUnit::run && amount > 1)
    refuse("dur is a fraction of the run, at most 1. Use ep for a number of epochs.");
}

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
  return formatted("%02ld:%02ld:%02ld:%02ld", whole / 86400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
}

std::string readable_duration(Seconds span) {
  const double seconds = span.count();
  if (!(std::abs(seconds) < 1e15)) return formatted("%.3g d", seconds / 86400);  // no int64 holds it
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 0.9995) return formatted("%.0f ms", seconds * 1000);
  if (seconds < 59.95) return formatted("%.1f s", seconds);
  if (whole < 3600) return formatted("%ld min %02ld s", whole / 60, whole % 60);
  if (whole < 86400) return formatted("%ld h %02ld min", whole / 3600, whole / 60 % 60);
  return formatted("%ld d %02ld h", whole / 86400, whole / 3600 % 24);
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

std::string bytes_text(uint64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  for (const Unit& unit : kBinaryUnits) {
    if (amount >= unit.bytes) return amount_text(amount / unit.bytes, 1, unit.name);
  }
  return amount_text(amount, 0, "B");
}

std::string decimal_bytes_text(double bytes) {
  if (bytes >= 1e9) return amount_text(bytes / 1e9, 1, "GB");
  return bytes >= 1e6 ? amount_text(bytes / 1e6, 1, "MB") : amount_text(bytes / 1e3, 0, "kB");
}

ByteSize parse_byte_size(const std::string& text) {
  double amount = 0;  // from_chars: no locale, no hexadecimal, no sign but "-"
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  size_t at = static_cast<size_t>(end - text.data());
  while (at < text.size() && text[at] == ' ') ++at;
  const double bytes = amount * unit_bytes(text.substr(at));
  const bool fits = bytes < 9e18;  // false if it is nan
  if (code != std::errc{} || unit_bytes(text.substr(at)) == 0 || !(amount >= 0) || !fits) {
    throw Error("\"" + cut_text(text) +
                "\" is not an amount of memory. Write a number with a unit: 11GiB, 512MiB, 1.5GB.");
  }
  return {std::llround(bytes)};
}

bool ValueType<ByteSize>::read(const ConfigNode& node, ByteSize& value, const std::string& path, Problems& problems) {
  if (!node.is_scalar()) return detail::expected("an amount of memory such as 11GiB", node, path, problems);
  try {
    value = parse_byte_size(node.text);
  } catch (const Error& error) {
    problems.add(node.mark, path, error.what());
    return false;
  }
  return true;
}

ConfigNode ValueType<ByteSize>::write(ByteSize value) {
  for (const Unit& unit : kBinaryUnits) {
    const auto size = static_cast<int64_t>(unit.bytes);
    if (value.bytes > 0 && value.bytes % size == 0) {
      return ConfigNode::scalar(std::to_string(value.bytes / size) + unit.name);
    }
  }
  return ConfigNode::scalar(std::to_string(value.bytes));
}

Period::Period(const std::string& text) {
  if (const auto found = counted_unit(text)) {
    std::tie(amount_, unit_) = *found;
  } else {
    unit_ = PeriodUnit::time;
    amount_ = seconds_in(text);
  }
  check(amount_, unit_, text);
}

Period::Period(Seconds span) : unit_(PeriodUnit::time), amount_(span.count()) {
  check(amount_, unit_, number_text(amount_) + "s");
}

int64_t Period::whole_epochs() const {
  const bool whole = unit_ == PeriodUnit::epochs && amount_ == std::floor(amount_);
  return whole ? static_cast<int64_t>(amount_) : 0;
}

bool Period::ends_between(double before, double now) const {
  return std::floor(now / amount_ + kRounding) > std::floor(before / amount_ + kRounding);
}

std::string Period::text() const {
  for (const auto& [name, unit] : kUnits) {
    if (unit != unit_) continue;
    char buffer[400];  // the longest double in fixed notation has some 330 characters
    auto* end = std::to_chars(buffer, buffer + sizeof buffer, amount_, std::chars_format::fixed).ptr;
    return std::string(buffer, end) + name;
  }
  return ValueType<Seconds>::write(Seconds(amount_)).text;
}

bool ValueType<Period>::read(const ConfigNode& node, Period& value, const std::string& path, Problems& problems) {
  if (!node.is_scalar())
    return detail::expected("a period such as \"500ba\", \"2ep\" or \"30min\"", node, path, problems);
  try {
    value = Period(node.text);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add(node.mark, path, problem);
    return false;
  }
  return true;
}

}  // namespace levin
