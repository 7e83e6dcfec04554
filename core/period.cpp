#include "levin/core/period.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "levin/core/error.h"

namespace levin {

namespace {

constexpr const char* kExamples =
    "Write 500ba (batches), 2ep (epochs), 30min or 00:00:30:00 (time), or 0.1dur (a "
    "share of the run).";

// Of multiples: 0.3 / 0.1 is a little less than 3.
constexpr double kRounding = 1e-9;

constexpr std::array kUnits{std::pair{"ba", PeriodUnit::batches}, std::pair{"ep", PeriodUnit::epochs},
                            std::pair{"dur", PeriodUnit::run}};

std::optional<std::pair<double, PeriodUnit>> counted(const std::string& text) {
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
    refuse("the number of batches is whole. Use 1ba or more, or a share of an epoch such as 0.5ep.");
  if (unit == PeriodUnit::epochs && amount > 1 && amount != std::floor(amount))
    refuse("a period of more than one epoch is a whole number of them. Use 1ep, 2ep, or a number of batches.");
  if (unit == PeriodUnit::run && amount > 1)
    refuse("dur is a share of the run, at most 1. Use ep for a number of epochs.");
}

}  // namespace

Period::Period(const std::string& text) {
  if (const auto found = counted(text)) {
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
