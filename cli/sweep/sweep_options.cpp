#include "levin/cli/sweep/sweep_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

constexpr int64_t kMaxIntegers = 100'000;  // of one range, for a grid

constexpr std::array kKinds{std::pair{"choice", Range::Kind::choice}, std::pair{"grid", Range::Kind::choice},
                            std::pair{"uniform", Range::Kind::uniform},
                            std::pair{"log_uniform", Range::Kind::log_uniform}, std::pair{"int", Range::Kind::integer}};

constexpr int64_t kLargestEnd = int64_t{1} << 53;  // of integers: up to here doubles hold each of them

std::string quoted_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Within a list or a map, where commas and brackets end a plain scalar.
std::string inner_text(const ConfigNode& value) {
  if (value.is_scalar()) {
    const bool plain = !value.text.empty() && value.text.find_first_of(",[]{}:#\"'&*!|>%@` \t\n") == std::string::npos;
    return value.quoted || !plain ? quoted_text(value.text) : value.text;
  }
  std::string text;
  for (const auto& item : value.items) text += (text.empty() ? "" : ", ") + inner_text(item);
  for (const auto& entry : value.entries) {
    text += (text.empty() ? "" : ", ") + quoted_text(entry.key) + ": " + inner_text(entry.value);
  }
  if (value.is_null()) return "null";
  return value.is_list() ? "[" + text + "]" : "{" + text + "}";
}

void read_ends(const ConfigNode& node, const std::string& path, Range& range, Problems& problems) {
  if (!node.is_list() || node.items.size() != 2) {
    problems.add(node.mark, path, "expected two numbers, [LOWEST, HIGHEST], got " + node.shown() + ".");
    return;
  }
  for (size_t k = 0; k < 2; ++k) {
    double& end = k == 0 ? range.low : range.high;
    int64_t whole = 0;
    const std::string here = path + "[" + std::to_string(k) + "]";
    if (range.kind == Range::Kind::integer) {
      if (!ValueType<int64_t>::read(node.items[k], whole, here, problems)) return;
      if (whole < -kLargestEnd || whole > kLargestEnd) {
        return problems.add(node.items[k].mark, here,
                            "must be from -2^53 to 2^53, got " + std::to_string(whole) + ". Use a choice of values.");
      }
      end = static_cast<double>(whole);
    } else if (!ValueType<double>::read(node.items[k], end, here, problems)) {
      return;
    }
    if (!std::isfinite(end))
      return problems.add(node.items[k].mark, here, "must be finite, got " + number_text(end) + ".");
  }
  if (!(range.low < range.high)) {
    problems.add(node.mark, path,
                 "the lowest value must be below the highest, got [" + short_number(range.low) + ", " +
                     short_number(range.high) + "].");
  }
  if ((range.kind == Range::Kind::log_uniform || range.log) && range.low <= 0) {
    problems.add(node.mark, path,
                 "a logarithmic range must begin above 0, got " + short_number(range.low) + ". Use " +
                     (range.log ? "log: false." : "uniform, or a small number above 0."));
  }
}

void read_choices(const ConfigNode& node, const std::string& path, Range& range, Problems& problems) {
  if (!node.is_list() || node.items.empty()) {
    problems.add(node.mark, path,
                 "expected a list of values, such as [0.1, 0.01], got " +
                     (node.is_list() ? std::string("an empty list") : node.shown()) + ".");
    return;
  }
  for (const auto& item : node.items) {
    const std::string text = override_text(item);
    if (std::find(range.choices.begin(), range.choices.end(), text) != range.choices.end()) {
      problems.add(item.mark, path, text + " is a duplicate.");
    }
    range.choices.push_back(text);
  }
}

// The entry that names the kind of a range; null, with a problem, if there is not exactly one.
const ConfigEntry* kind_entry(const ConfigNode& node, const std::string& path, Range& range, Problems& problems) {
  const std::string known = "choice, grid, uniform, log_uniform or int";
  const std::string how = "Write one of " + known + ": {uniform: [0, 0.5]}.";
  if (!node.is_map()) {
    problems.add(node.mark, path, "expected a range, got " + node.shown() + ". " + how);
    return nullptr;
  }
  const ConfigEntry* found = nullptr;
  for (const auto& entry : node.entries) {
    const auto* kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& k) { return entry.key == k.first; });
    if (kind == kKinds.end()) continue;
    if (found != nullptr) {
      problems.add(entry.key_mark, path, found->key + " and " + entry.key + " are both given. " + how);
      return nullptr;
    }
    found = &entry;
    range.kind = kind->second;
  }
  for (const auto& entry : node.entries) {
    const bool of_integers = found != nullptr && range.kind == Range::Kind::integer;
    if (&entry == found || (of_integers && (entry.key == "step" || entry.key == "log"))) continue;
    problems.add(entry.key_mark, path + "." + cut_text(entry.key),
                 entry.key == "step" || entry.key == "log" ? "belongs to int ranges only." : "unknown key. " + how);
    return nullptr;
  }
  if (found == nullptr) problems.add(node.mark, path, "the range is empty. " + how);
  return found;
}

Range read_range(const std::string& key, const ConfigNode& node, Problems& problems) {
  Range range;
  range.path = key;
  range.mark = node.mark;
  const std::string path = "space." + key;
  const ConfigEntry* kind = kind_entry(node, path, range, problems);
  if (kind == nullptr) return range;
  if (range.kind == Range::Kind::choice) {
    read_choices(kind->value, path + "." + kind->key, range, problems);
    return range;
  }
  if (const ConfigNode* step = node.find("step")) {
    if (ValueType<int64_t>::read(*step, range.step, path + ".step", problems) && range.step < 1) {
      problems.add(step->mark, path + ".step", "must be >= 1, got " + std::to_string(range.step) + ".");
      range.step = 1;
    }
  }
  if (const ConfigNode* log = node.find("log")) (void)ValueType<bool>::read(*log, range.log, path + ".log", problems);
  read_ends(kind->value, path + "." + kind->key, range, problems);
  if (range.log && range.step != 1) {
    problems.add(node.mark, path, "step and log exclude each other. Leave one out.");
  }
  return range;
}

// To six digits, which a person can read and type.
double rounded(double value, double low, double high) {
  std::array<char, 32> text = {};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6).ptr;
  (void)std::from_chars(text.data(), end, value);
  return std::clamp(value, low, high);
}

void check_search(const SweepFile& file, const ConfigNode& node, Problems& problems) {
  const SweepOptions& options = file.options;
  const SearchMethod method = options.search.method;
  const auto* search = node.find("search");
  const Mark mark = search != nullptr ? search->mark : node.mark;
  const std::string word = ValueType<SearchMethod>::write(method).text;
  if (!options.max_trials && method != SearchMethod::grid && method != SearchMethod::hyperband) {
    problems.add(node.mark, "max_trials", "is not set, and " + word + " has no end of its own. Write max_trials: 40.");
  }
  if (options.max_trials && *options.max_trials < 1) {
    problems.add(node.mark, "max_trials", "must be >= 1, got " + std::to_string(*options.max_trials) + ".");
  }
  if (method == SearchMethod::sobol && file.space.size() > kSobolDimensions) {
    problems.add(mark, "search.method",
                 "sobol takes up to " + std::to_string(kSobolDimensions) + " keys, and space has " +
                     std::to_string(file.space.size()) + ". Use random.");
  }
  if (method == SearchMethod::grid) {
    for (const auto& range : file.space) {
      if (range.kind != Range::Kind::uniform && range.kind != Range::Kind::log_uniform) continue;
      problems.add(range.mark, "space." + range.path,
                   "a grid needs single values, and this is " + range.str() +
                       ". Write {grid: [A, B, C]} or {int: [A, B]}, or use search: {method: random}.");
    }
  }
  const auto& most = options.search.max_resource;
  if (most && *most < options.search.min_resource) {
    problems.add(mark, "search.max_resource",
                 "must be at least min_resource (" + std::to_string(options.search.min_resource) + "), got " +
                     std::to_string(*most) + ".");
  }
}

SweepFile read_sweep_node(const ConfigNode& node, const std::string& name, Problems& problems) {
  SweepFile file;
  file.name = name;
  (void)read_options(node, file.options, "", problems);
  const ConfigNode& run = file.options.run;
  if (!run.is_map() && !(run.is_scalar() && !run.text.empty())) {
    problems.add(run.mark.line > 0 ? run.mark : node.mark, "run",
                 "expected the name of a run file, or its contents as a map, got " + run.shown() + ".");
  }
  file.space = read_space(file.options.space, problems);
  if (problems.empty()) check_search(file, node, problems);
  return file;
}

}  // namespace

std::string override_text(const ConfigNode& value) {
  if (value.is_null()) return "null";
  if (value.is_scalar()) return value.quoted ? quoted_text(value.text) : value.text;
  return inner_text(value);
}

std::string Range::value_at(double u) const {
  switch (kind) {
    case Kind::choice: {
      const auto count = static_cast<double>(choices.size());
      return choices[std::min(choices.size() - 1, static_cast<size_t>(u * count))];
    }
    case Kind::uniform: {
      const double width = high - low;  // infinite between the largest doubles
      return number_text(rounded(std::isfinite(width) ? low + u * width : std::lerp(low, high, u), low, high));
    }
    case Kind::log_uniform:
      return number_text(rounded(std::exp(std::log(low) + u * (std::log(high) - std::log(low))), low, high));
    case Kind::integer: break;
  }
  if (log) {
    const double drawn = std::exp(std::log(low) + u * (std::log(high + 1) - std::log(low)));
    return std::to_string(static_cast<int64_t>(std::clamp(std::floor(drawn), low, high)));
  }
  const double steps = std::floor((high - low) / static_cast<double>(step)) + 1;
  const auto index = static_cast<int64_t>(std::min(steps - 1, std::floor(u * steps)));
  return std::to_string(static_cast<int64_t>(low) + index * step);
}

std::vector<std::string> Range::all_values() const {
  if (kind == Kind::choice) return choices;
  if (kind != Kind::integer) return {};
  std::vector<std::string> values;
  const auto last = static_cast<int64_t>(high);
  for (auto value = static_cast<int64_t>(low); std::ssize(values) <= kMaxIntegers; value += step) {
    values.push_back(std::to_string(value));
    if (last - value < step) break;
  }
  return values;
}

std::vector<std::string> Range::values_to_check() const {
  if (kind == Kind::choice) return choices;
  if (kind == Kind::integer) return {value_at(0), value_at(std::nextafter(1.0, 0.0))};
  return {number_text(low), number_text(high)};
}

bool Range::contains(const std::string& value) const {
  if (kind == Kind::choice) return std::find(choices.begin(), choices.end(), value) != choices.end();
  double number = 0;
  int64_t whole = 0;
  const ConfigNode node = ConfigNode::scalar(value);
  if (kind == Kind::integer) {
    return detail::parse_int(node, whole) && static_cast<double>(whole) >= low && static_cast<double>(whole) <= high &&
           (whole - static_cast<int64_t>(low)) % step == 0;
  }
  return detail::parse_double(node, number) && number >= low && number <= high;
}

std::string Range::str() const {
  if (kind == Kind::choice) return "choice [" + join(choices) + "]";
  const std::string ends = " [" + short_number(low) + ", " + short_number(high) + "]";
  if (kind == Kind::uniform) return "uniform" + ends;
  if (kind == Kind::log_uniform) return "log_uniform" + ends;
  return "int" + ends + (step != 1 ? ", step " + std::to_string(step) : "") + (log ? ", log" : "");
}

Space read_space(const ConfigNode& node, Problems& problems) {
  Space space;
  if (!node.is_map() || node.entries.empty()) {
    problems.add(node.mark, "space",
                 "expected a map from keys of the run file to ranges, got " +
                     (node.is_map() ? std::string("an empty map") : node.shown()) +
                     ". Write space: {optimizer.lr: {log_uniform: [0.0001, 0.1]}}.");
    return space;
  }
  for (const auto& entry : node.entries) space.push_back(read_range(entry.key, entry.value, problems));
  return space;
}

SweepFile read_sweep_file(const std::string& path, const std::vector<Override>& changes, Problems& problems) {
  ConfigNode node = read_yaml_input(path, problems);
  if (!problems.empty()) return {};
  for (const Override& change : changes) apply_override(node, change, problems);
  if (!problems.empty()) return {};
  return read_sweep_node(node, std::filesystem::path(path).stem().string(), problems);
}

SweepFile read_sweep_text(const std::string& text, const std::string& name, Problems& problems) {
  const ConfigNode node = read_yaml_text(text, name + ".yaml", problems);
  if (!problems.empty()) return {};
  return read_sweep_node(node, name, problems);
}

}  // namespace levin
