#include "levin/core/byte_size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "levin/core/error.h"

namespace levin {

namespace {

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

}  // namespace

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

}  // namespace levin
