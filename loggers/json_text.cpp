#include "levin/loggers/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "levin/core/value.h"
#include "levin/core/wire_message.h"

namespace levin {

namespace {

template <class Items, class Each>
void append_items(std::string& line, const Items& items, std::string_view brackets, const Each& each) {
  line += brackets[0];
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) line += ',';
    each(item);
  }
  line += brackets[1];
}

void append_escaped(std::string& line, char c) {
  switch (c) {
    case '"': line += "\\\""; return;
    case '\\': line += "\\\\"; return;
    case '\n': line += "\\n"; return;
    case '\r': line += "\\r"; return;
    case '\t': line += "\\t"; return;
    default: break;
  }
  std::array<char, 8> code{};
  std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  line += code.data();
}

}  // namespace

void append_json(std::string& line, double number) {
  if (std::isnan(number)) {
    line += "\"NaN\"";
  } else if (std::isinf(number)) {
    line += number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    line.append(digits.data(), end.ptr);
  }
}

void append_json(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : valid_utf8(text)) {
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
    plain ? line.push_back(c) : append_escaped(line, c);
  }
  line += '"';
}

void append_json(std::string& line, const MetricList& numbers) {
  append_items(line, numbers, "{}", [&](const auto& one) {
    append_json(line, std::string_view(one.first));
    line += ':';
    append_json(line, one.second);
  });
}

void append_json(std::string& line, std::span<const double> numbers) {
  append_items(line, numbers, "[]", [&](double number) { append_json(line, number); });
}

void append_json(std::string& line, const LogTable::Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return append_json(line, *number);
  append_json(line, std::string_view(std::get<std::string>(cell)));
}

void append_json(std::string& line, const ConfigNode& node) {
  bool truth = false;
  double number = 0;
  if (node.is_null()) {
    line += "null";
  } else if (node.is_list()) {
    append_items(line, node.items, "[]", [&](const ConfigNode& item) { append_json(line, item); });
  } else if (node.is_map()) {
    append_items(line, node.entries, "{}", [&](const ConfigEntry& entry) {
      append_json(line, std::string_view(entry.key));
      line += ':';
      append_json(line, entry.value);
    });
  } else if (!node.quoted && detail::parse_bool(node, truth)) {
    line += truth ? "true" : "false";
  } else if (!node.quoted && detail::parse_double(node, number)) {
    append_json(line, number);
  } else {
    append_json(line, std::string_view(node.text));
  }
}

}  // namespace levin
