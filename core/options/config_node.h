// The tree that options are read from and written to: the contents of a YAML file, an override or a checkpoint, with
// the origin of each value. No YAML library is needed to use it; yaml/ fills it from files.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

// What a plain scalar of YAML means, by YAML 1.2's core schema.

/// Returns whether a plain (unquoted) scalar means a string: not null, a bool or a number.
[[nodiscard]] bool reads_as_string(const std::string& text);

namespace detail {

[[nodiscard]] bool parse_int(const std::string& text, int64_t& value);
[[nodiscard]] bool parse_double(const std::string& text, double& value);
[[nodiscard]] bool parse_bool(const std::string& text, bool& value);

}  // namespace detail

/// Returns whether an int64_t is this number to the last digit: whole, and less than 9e15.
[[nodiscard]] inline bool is_whole_number(double value) {
  return std::abs(value) < 9e15 && std::floor(value) == value;
}

/// Where a value was written: a file with line and column (from 1), or the override's own text.
struct Mark {
  std::string source = "";
  int line = 0;
  int column = 0;

  /// "run.yaml:7:3", "--trainer.max_epochs=x", or "" if the value came from code.
  [[nodiscard]] std::string str() const;
};

struct ConfigEntry;

/// A null, a scalar kept as written, a list or a map whose keys keep their order.
struct ConfigNode {
  /// What a node is.
  enum class Kind { null, scalar, list, map };

  // Defined in the .cpp file, so that programs do not compile them.
  ConfigNode();
  ConfigNode(const ConfigNode& other);
  ConfigNode(ConfigNode&& other) noexcept;
  ConfigNode& operator=(const ConfigNode& other);
  ConfigNode& operator=(ConfigNode&& other) noexcept;
  ~ConfigNode();

  Kind kind = Kind::null;
  std::string text = "";    // of a scalar
  bool quoted = false;      // a quoted scalar is a string, never a number, bool or null
  bool may_differ = false;  // between the ranks of a run: see Field::ranks_may_differ; no part of the value
  // Without initialisers, for which clang asks for the whole of ConfigEntry.
  std::vector<ConfigNode> items;
  std::vector<ConfigEntry> entries;
  Mark mark = {};

  static ConfigNode scalar(std::string text, bool quoted = false);
  static ConfigNode list();
  static ConfigNode list(std::vector<ConfigNode> items);
  static ConfigNode map();

  [[nodiscard]] bool is_null() const { return kind == Kind::null; }
  [[nodiscard]] bool is_scalar() const { return kind == Kind::scalar; }
  [[nodiscard]] bool is_list() const { return kind == Kind::list; }
  [[nodiscard]] bool is_map() const { return kind == Kind::map; }

  /// Returns the value of `key` in a map, or null pointer.
  [[nodiscard]] const ConfigNode* find(std::string_view key) const;
  [[nodiscard]] ConfigNode* find(std::string_view key);

  /// Sets `key` of a map (anything else becomes a map); keeps the key's place in the order if it is already there.
  ConfigNode& set(std::string_view key, ConfigNode value, Mark key_mark = {});

  /// Removes `key`; true if it was there.
  bool erase(std::string_view key);

  /// Returns the value as messages show it: the scalar (truncated if long), or "a list", "a map", "null".
  [[nodiscard]] std::string shown() const;

  /// Same kinds, values and order of list items ("5" is not 5); the order of keys and the marks do not count.
  [[nodiscard]] bool same_as(const ConfigNode& other) const;
};

/// One key of a map, with the position of the key and its value.
struct ConfigEntry {
  std::string key;
  Mark key_mark;
  ConfigNode value;
};

/// Writes block-style YAML that reads back to the same tree; `indent` spaces before each line.
[[nodiscard]] std::string to_yaml(const ConfigNode& node, int indent = 0);

/// Returns the shortest text that reads back to exactly `value`; "inf", "-inf" and "nan" spelled as YAML does (".inf").
[[nodiscard]] std::string number_text(double value);

}  // namespace levin
