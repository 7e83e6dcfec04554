#include "levin/core/options/config_node.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"

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

std::string Mark::str() const {
  if (line == 0) return source;
  return source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

ConfigNode::ConfigNode() = default;
ConfigNode::ConfigNode(const ConfigNode& other) = default;
ConfigNode::ConfigNode(ConfigNode&& other) noexcept = default;
ConfigNode& ConfigNode::operator=(const ConfigNode& other) = default;
ConfigNode& ConfigNode::operator=(ConfigNode&& other) noexcept = default;
ConfigNode::~ConfigNode() = default;

ConfigNode ConfigNode::scalar(std::string text, bool quoted) {
  ConfigNode node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

ConfigNode ConfigNode::list() {
  return list({});
}

ConfigNode ConfigNode::list(std::vector<ConfigNode> items) {
  ConfigNode node;
  node.kind = Kind::list;
  node.items = std::move(items);
  return node;
}

ConfigNode ConfigNode::map() {
  ConfigNode node;
  node.kind = Kind::map;
  return node;
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (const auto& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

ConfigNode* ConfigNode::find(std::string_view key) {
  return const_cast<ConfigNode*>(static_cast<const ConfigNode*>(this)->find(key));
}

ConfigNode& ConfigNode::set(std::string_view key, ConfigNode value, Mark key_mark) {
  if (kind != Kind::map) *this = map();
  for (auto& entry : entries) {
    if (entry.key == key) {
      entry.value = std::move(value);
      entry.key_mark = std::move(key_mark);
      return entry.value;
    }
  }
  entries.push_back({std::string(key), std::move(key_mark), std::move(value)});
  return entries.back().value;
}

bool ConfigNode::erase(std::string_view key) {
  return std::erase_if(entries, [&](const ConfigEntry& entry) { return entry.key == key; }) > 0;
}

std::string ConfigNode::shown() const {
  switch (kind) {
    case Kind::null: return "null";
    case Kind::scalar: return quoted ? "\"" + cut_text(text) + "\"" : cut_text(text);
    case Kind::list: return "a list";
    case Kind::map: return "a map";
  }
  return "";
}

bool ConfigNode::same_as(const ConfigNode& other) const {
  if (kind != other.kind || text != other.text) return false;
  if (is_scalar() && quoted != other.quoted && !reads_as_string(text)) return false;
  if (items.size() != other.items.size() || entries.size() != other.entries.size()) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].same_as(other.items[i])) return false;
  }
  std::unordered_map<std::string_view, const ConfigNode*> twins;
  for (const auto& entry : other.entries) twins.emplace(entry.key, &entry.value);
  for (const auto& entry : entries) {
    const auto twin = twins.find(entry.key);
    if (twin == twins.end() || !entry.value.same_as(*twin->second)) return false;
  }
  return true;
}

std::string number_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  // 1e+20 and 3 must read back as floating point, so that printing a config does not change a field's type.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

namespace {

// The escape of a control character: see terminal_escape. "" for all others, and for bytes that are not UTF-8, for
// which YAML has no escape.
std::string escape_of(const std::string& text, size_t at) {
  return utf8_length(text, at) > 1 ? terminal_escape(text, at) : "";
}

// Words that YAML 1.1 readers (also Python's) interpret as bools, numbers, dates or times, unlike us.
bool may_mislead(const std::string& text) {
  static const std::array words{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan", "infinity"};
  std::string lower;
  for (char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (std::find(words.begin(), words.end(), lower) != words.end()) return true;
  return text.find_first_not_of("0123456789.+-_:eExXabcdefABCDEFTZ ") == std::string::npos &&
         text.find_first_of("0123456789") == 0;
}

// Plain style only if YAML reads back the same string.
bool is_plain_safe(const std::string& text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.starts_with("...") || text == "<<")
    return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`").find(text.front()) != std::string_view::npos) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f || !escape_of(text, i).empty()) return false;
    if (std::string_view(",[]{}?").find(text[i]) != std::string_view::npos) return false;
    if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return false;
    if (text[i] == '#' && text[i - 1] == ' ') return false;
  }
  return true;
}

std::string double_quoted(const std::string& text) {
  static const char* hex = "0123456789abcdef";
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const unsigned char u = static_cast<unsigned char>(c);
    if (const std::string escape = escape_of(text, i); !escape.empty()) {
      out += escape;
      i += utf8_length(text, i) - 1;
    } else if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (u < 0x20 || u == 0x7f) {
      out += std::string("\\x") + hex[u >> 4] + hex[u & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string scalar_yaml(const ConfigNode& node) {
  if (!node.quoted && !node.text.empty() && !reads_as_string(node.text)) return node.text;  // -1, .5, true
  const bool must_quote = node.quoted && (!reads_as_string(node.text) || may_mislead(node.text));
  return must_quote || !is_plain_safe(node.text) ? double_quoted(node.text) : node.text;
}

bool is_inline(const ConfigNode& node) {
  if (node.is_map()) return node.entries.empty();
  return !node.is_list() || node.items.empty() || [&] {
    for (const auto& item : node.items) {
      if (!item.is_scalar() && !item.is_null()) return false;
    }
    return true;
  }();
}

std::string inline_yaml(const ConfigNode& node) {
  if (node.is_null()) return "null";
  if (node.is_scalar()) return scalar_yaml(node);
  if (node.is_map()) return "{}";
  std::string out = "[";
  for (const auto& item : node.items) out += (out.size() > 1 ? ", " : "") + inline_yaml(item);
  return out + "]";
}

}  // namespace

std::string to_yaml(const ConfigNode& node, int indent) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  if (is_inline(node)) return pad + inline_yaml(node) + "\n";
  std::string out;
  if (node.is_map()) {
    for (const auto& [key, key_mark, value] : node.entries) {
      const std::string name =
          is_plain_safe(key) && reads_as_string(key) && !may_mislead(key) ? key : double_quoted(key);
      out +=
          pad + name + ":" + (is_inline(value) ? " " + inline_yaml(value) + "\n" : "\n" + to_yaml(value, indent + 2));
    }
    return out;
  }
  for (const auto& item : node.items) {
    std::string block = to_yaml(item, indent + 2);
    block[static_cast<size_t>(indent)] = '-';  // the first key of an item follows its dash
    out += block;
  }
  return out;
}

}  // namespace levin
