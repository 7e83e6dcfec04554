// Reads one typed value from a ConfigNode and writes it back. Strict where YAML is loose: 010, 0x10, 1_000, yes
// and unquoted text where a number belongs are errors that show the value and what was expected.
//
// A type that options may have needs a specialisation of ValueType:
//   static std::string name();                                          its name in help and messages
//   static bool read(const ConfigNode&, T&, const std::string& path, Problems&);   false: a problem was added
//   static ConfigNode write(const T&);                                  reads back to the same value
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/options/config_node.h"

namespace levin {

/// Everything that is wrong with a configuration, collected so that one run reports it all.
class Problems {
 public:
  /// Adds "where: path: what". Parts that are empty are left out, and the path of an override that begins with the same
  /// one: "--trainer.devices=x: what".
  void add(const Mark& mark, const std::string& path, const std::string& what);

  void add(const Problems& others);

  [[nodiscard]] bool empty() const { return lines_.empty(); }
  [[nodiscard]] size_t size() const { return lines_.size(); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  /// Returns the path of each line.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

  /// Throws ConfigError with all lines if there are any.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> paths_;
};

/// Returns "parent.key", or "key" if `parent` is empty.
[[nodiscard]] std::string join_path(const std::string& parent, const std::string& key);

/// For a type that options cannot have: field() rejects it.
template <class T>
struct ValueType {
  using Unknown = void;
  static std::string name();
  static bool read(const ConfigNode& node, T& value, const std::string& path, Problems& problems);
  static ConfigNode write(const T& value);
};

template <class T>
concept HasValueType = !requires {
  typename ValueType<T>::Unknown;
};

/// An enumerator's name in YAML.
template <class E>
struct EnumName {
  const char* name;
  E value;
};

/// Specialise for an enum: `static constexpr EnumName<Mode> names[] = {{"min", Mode::min}, …};`
template <class E>
struct EnumNames;

namespace detail {
[[nodiscard]] bool parse_int(const ConfigNode& node, int64_t& value);
[[nodiscard]] bool parse_double(const ConfigNode& node, double& value);
[[nodiscard]] bool parse_bool(const ConfigNode& node, bool& value);
bool expected(const std::string& type, const ConfigNode& node, const std::string& path, Problems& problems);
[[noreturn]] void throw_unknown_choice(const char* text, const std::vector<std::string>& known, const char* file,
                                       int line);
bool unknown_choice(const ConfigNode& node, const std::string& path, const std::vector<std::string>& known,
                    Problems& problems);
std::string index_path(const std::string& path, size_t index);
/// Whether the problems are about parts of the value at `path` and none about the value itself.
bool only_about_parts(const Problems& problems, const std::string& path);
}  // namespace detail

template <>
struct ValueType<bool> {
  static std::string name() { return "bool"; }
  static bool read(const ConfigNode& node, bool& value, const std::string& path, Problems& problems);
  static ConfigNode write(bool value) { return ConfigNode::scalar(value ? "true" : "false"); }
};

template <>
struct ValueType<int64_t> {
  static std::string name() { return "int"; }
  static bool read(const ConfigNode& node, int64_t& value, const std::string& path, Problems& problems);
  static ConfigNode write(int64_t value) { return ConfigNode::scalar(std::to_string(value)); }
};

template <>
struct ValueType<int> {
  static std::string name() { return "int"; }
  static bool read(const ConfigNode& node, int& value, const std::string& path, Problems& problems);
  static ConfigNode write(int value) { return ConfigNode::scalar(std::to_string(value)); }
};

template <>
struct ValueType<double> {
  static std::string name() { return "float"; }
  static bool read(const ConfigNode& node, double& value, const std::string& path, Problems& problems);
  static ConfigNode write(double value) { return ConfigNode::scalar(number_text(value)); }
};

template <>
struct ValueType<std::string> {
  static std::string name() { return "string"; }
  static bool read(const ConfigNode& node, std::string& value, const std::string& path, Problems& problems);
  static ConfigNode write(const std::string& value) { return ConfigNode::scalar(value, true); }
};

/// Kept as written, for values whose type only a different class knows.
template <>
struct ValueType<ConfigNode> {
  static std::string name() { return "any"; }
  static bool read(const ConfigNode& node, ConfigNode& value, const std::string&, Problems&) {
    value = node;
    return true;
  }
  static ConfigNode write(const ConfigNode& value) { return value; }
};

template <class T>
struct ValueType<std::optional<T>> {
  static std::string name() { return ValueType<T>::name() + " or null"; }
  static bool read(const ConfigNode& node, std::optional<T>& value, const std::string& path, Problems& problems) {
    value.reset();
    if (node.is_null()) return true;
    return ValueType<T>::read(node, value.emplace(), path, problems);
  }
  static ConfigNode write(const std::optional<T>& value) { return value ? ValueType<T>::write(*value) : ConfigNode{}; }
};

template <class T>
struct ValueType<std::vector<T>> {
  static std::string name() { return "list of " + ValueType<T>::name(); }
  static bool read(const ConfigNode& node, std::vector<T>& value, const std::string& path, Problems& problems) {
    if (!node.is_list()) return detail::expected(name(), node, path, problems);
    value.clear();
    bool good = true;
    for (size_t i = 0; i < node.items.size(); ++i) {
      T item{};
      good = ValueType<T>::read(node.items[i], item, detail::index_path(path, i), problems) && good;
      value.push_back(std::move(item));
    }
    return good;
  }
  static ConfigNode write(const std::vector<T>& value) {
    ConfigNode node = ConfigNode::list();
    for (const auto& item : value) node.items.push_back(ValueType<T>::write(item));
    return node;
  }
};

template <class T, size_t N>
struct ValueType<std::array<T, N>> {
  static std::string name() { return "list of " + std::to_string(N) + " " + ValueType<T>::name(); }
  static bool read(const ConfigNode& node, std::array<T, N>& value, const std::string& path, Problems& problems) {
    if (!node.is_list() || node.items.size() != N) return detail::expected(name(), node, path, problems);
    bool good = true;
    for (size_t i = 0; i < N; ++i) {
      good = ValueType<T>::read(node.items[i], value[i], detail::index_path(path, i), problems) && good;
    }
    return good;
  }
  static ConfigNode write(const std::array<T, N>& value) {
    ConfigNode node = ConfigNode::list();
    for (const auto& item : value) node.items.push_back(ValueType<T>::write(item));
    return node;
  }
};

template <class K, class T>
struct ValueType<std::map<K, T>> {
  static std::string name() { return "map of " + ValueType<K>::name() + " to " + ValueType<T>::name(); }
  static bool read(const ConfigNode& node, std::map<K, T>& value, const std::string& path, Problems& problems) {
    if (!node.is_map()) return detail::expected(name(), node, path, problems);
    value.clear();
    bool good = true;
    for (const auto& entry : node.entries) {
      ConfigNode key_node = ConfigNode::scalar(entry.key);
      key_node.mark = entry.key_mark;
      K key{};
      const std::string key_path = join_path(path, entry.key);
      good = ValueType<K>::read(key_node, key, key_path, problems) &&
             ValueType<T>::read(entry.value, value[key], key_path, problems) && good;
    }
    return good;
  }
  static ConfigNode write(const std::map<K, T>& value) {
    ConfigNode node = ConfigNode::map();
    for (const auto& [key, item] : value) {
      node.entries.push_back({ValueType<K>::write(key).text, {}, ValueType<T>::write(item)});
    }
    return node;
  }
};

/// The first alternative that takes the value wins, so write the narrower type first: variant<int64_t, double>.
/// If none does, the problems of the first one that fits but for some of its parts are reported.
template <class... Ts>
struct ValueType<std::variant<Ts...>> {
  static std::string name() {
    std::string text;
    ((text += (text.empty() ? "" : " or ") + ValueType<Ts>::name()), ...);
    return text;
  }
  static bool read(const ConfigNode& node, std::variant<Ts...>& value, const std::string& path, Problems& problems) {
    Problems closest;
    if ((try_one<Ts>(node, value, path, closest) || ...)) return true;
    if (!closest.empty()) {
      problems.add(closest);
      return false;
    }
    return detail::expected(name(), node, path, problems);
  }
  static ConfigNode write(const std::variant<Ts...>& value) {
    return std::visit([](const auto& held) { return ValueType<std::decay_t<decltype(held)>>::write(held); }, value);
  }

 private:
  template <class T>
  static bool try_one(const ConfigNode& node, std::variant<Ts...>& value, const std::string& path, Problems& closest) {
    Problems tried;
    T held{};
    if (ValueType<T>::read(node, held, path, tried)) {
      value = std::move(held);
      return true;
    }
    if (closest.empty() && detail::only_about_parts(tried, path)) closest = std::move(tried);
    return false;
  }
};

template <class E>
requires std::is_enum_v<E>
struct ValueType<E> {
  static std::vector<std::string> known() {
    std::vector<std::string> names;
    for (const auto& [name, value] : EnumNames<E>::names) names.emplace_back(name);
    return names;
  }
  static std::string name() {
    std::string text;
    for (const auto& name : known()) text += (text.empty() ? "" : "|") + name;
    return text;
  }
  static std::optional<E> find(std::string_view text) {
    for (const auto& [name, value] : EnumNames<E>::names) {
      if (text == name) return value;
    }
    return std::nullopt;
  }
  static bool read(const ConfigNode& node, E& value, const std::string& path, Problems& problems) {
    const std::optional<E> found = node.is_scalar() ? find(node.text) : std::nullopt;
    if (!found) return detail::unknown_choice(node, path, known(), problems);
    value = *found;
    return true;
  }
  static ConfigNode write(E value) {
    for (const auto& [name, enumerator] : EnumNames<E>::names) {
      if (enumerator == value) return ConfigNode::scalar(name, true);
    }
    return ConfigNode{};
  }
};

/// Returns the name of an enumerator in YAML.
template <class E>
requires std::is_enum_v<E> std::string enum_name(E value) {
  return ValueType<E>::write(value).text;
}

/// An enumerator that an option holds. In C++ it may also be given by its name in YAML: .mode = "max".
template <class E>
requires std::is_enum_v<E>
class EnumOption {
 public:
  constexpr EnumOption() = default;
  constexpr EnumOption(E value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  /// Throws ConfigError with the caller's line and the known names if the text is none of them.
  EnumOption(const char* name, const char* file = __builtin_FILE(),  // NOLINT(google-explicit-constructor)
             int line = __builtin_LINE())
      : EnumOption(find(name, file, line)) {}
  EnumOption(const std::string& name, const char* file = __builtin_FILE(),  // NOLINT(google-explicit-constructor)
             int line = __builtin_LINE())
      : EnumOption(find(name.c_str(), file, line)) {}
  EnumOption(std::nullptr_t) = delete;
  constexpr operator E() const { return value_; }  // NOLINT(google-explicit-constructor)

  friend constexpr bool operator==(EnumOption a, EnumOption b) { return a.value_ == b.value_; }
  friend constexpr bool operator==(EnumOption a, E b) { return a.value_ == b; }

 private:
  static E find(const char* text, const char* file, int line) {
    if (const auto found = text == nullptr ? std::nullopt : ValueType<E>::find(text)) return *found;
    detail::throw_unknown_choice(text, ValueType<E>::known(), file, line);
  }

  E value_ = {};
};

template <class E>
struct ValueType<EnumOption<E>> {
  static std::string name() { return ValueType<E>::name(); }
  static bool read(const ConfigNode& node, EnumOption<E>& value, const std::string& path, Problems& problems) {
    E read{};
    if (!ValueType<E>::read(node, read, path, problems)) return false;
    value = read;
    return true;
  }
  static ConfigNode write(EnumOption<E> value) { return ValueType<E>::write(value); }
};

template <class E>
std::string enum_name(EnumOption<E> value) {
  return enum_name(static_cast<E>(value));
}

}  // namespace levin
