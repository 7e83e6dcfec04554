// One list of fields per options struct serves YAML, overrides, help, checkpoints, docs and range checks.
//
//   struct TimerOptions {
//     std::string duration = "";   // DD:HH:MM:SS or "90min"
//     bool verbose = true;
//     static auto fields() {
//       return levin::fields(levin::field("duration", &TimerOptions::duration, "longest time to train, DD:HH:MM:SS"),
//                            levin::field("verbose", &TimerOptions::verbose, "say when the time is up"));
//     }
//   };
//
// Names in the list are the members' names: a test counts both. Levin's own headers declare fields() as a template
// (`template <class = void> static auto fields()`), so that only files that call it compile its body.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin::detail {

template <class T>
constexpr bool kIsVariant = false;
template <class... Ts>
constexpr bool kIsVariant<std::variant<Ts...>> = true;

/// A container of elements of its value_type; not a path, whose elements are paths.
template <class T>
concept IsContainer = requires(const T& value) {
  { *value.begin() } -> std::convertible_to<const typename T::value_type&>;
  value.end();
}
&&!requires(const T& value) {
  value.native();
};

/// Returns the first number that is nan or infinite in a number, an optional, a variant, or a container of these;
/// fields of structs are not checked.
template <class T>
std::optional<double> first_non_finite(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return value;
  } else if constexpr (kIsVariant<T>) {
    return std::visit([](const auto& held) { return first_non_finite(held); }, value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) return first_non_finite(*value);
  } else if constexpr (requires {
                         value.first;
                         value.second;
                       }) {
    const auto found = first_non_finite(value.first);
    return found ? found : first_non_finite(value.second);
  } else if constexpr (IsContainer<T>) {
    for (const auto& item : value) {
      if (const auto found = first_non_finite(item)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace levin::detail

namespace levin {

/// The parameter of constructors that use the default options. With it X({}) means X(): otherwise g++ would reject the
/// call as ambiguous, because {} could be the options or an X to copy.
enum class Defaults {};

/// One line of help for an option.
struct FieldInfo {
  std::string name;
  std::string type;
  std::string default_text;
  std::string doc;
};

namespace detail {
// What can be done with a value of a type that options may have, regardless of the struct that holds it.
struct ValueOperations {
  std::string (*name)();
  bool (*read)(const ConfigNode& node, void* value, const std::string& path, Problems& problems);
  ConfigNode (*write)(const void* value);
  std::optional<double> (*first_non_finite)(const void* value);
  // Checks the rules of all options structs within the value.
  bool (*check_inside)(const void* value, const Mark& mark, const std::string& path, Problems& problems);
};

/// A condition on an option's value. `text` completes the sentence "must be …".
struct FieldRule {
  std::function<bool(const void* value)> holds;
  std::string text;
  bool in_help = true;
};
}  // namespace detail

/// A member of an options struct without its type: its name, its one-line meaning (with unit), where it is in the
/// struct, and its range.
struct AnyField {
  const char* name;
  const char* doc;
  size_t offset;
  const detail::ValueOperations* operations;
  std::vector<detail::FieldRule> rules = {};
  bool takes_any_number = false;
  bool may_differ = false;

  [[nodiscard]] const void* in(const void* options) const { return static_cast<const std::byte*>(options) + offset; }
  [[nodiscard]] void* in(void* options) const { return static_cast<std::byte*>(options) + offset; }
};

/// A member of type T: what field() returns, for adding rules.
template <class T>
struct Field : AnyField {
  /// The value must satisfy `holds`; `rule` completes the sentence "must be …".
  Field&& check(std::function<bool(const T&)> holds, std::string rule) && { return add(std::move(holds), rule, true); }
  /// Same as check(), for a mistake that hardly anybody makes, such as a NUL byte in a path: help does not mention the
  /// rule.
  Field&& check_silently(std::function<bool(const T&)> holds, std::string rule) && {
    return add(std::move(holds), rule, false);
  }
  template <class N>
  Field&& min(N low) && {
    return add([low](const T& value) { return value >= low; }, ">= " + text(low), true);
  }
  template <class N>
  Field&& max(N high) && {
    return add([high](const T& value) { return value <= high; }, "<= " + text(high), true);
  }
  template <class N>
  Field&& above(N low) && {
    return add([low](const T& value) { return value > low; }, "> " + text(low), true);
  }
  template <class N>
  Field&& below(N high) && {
    return add([high](const T& value) { return value < high; }, "< " + text(high), true);
  }
  /// nan and infinities are allowed; all other fields reject them.
  Field&& any_number() && {
    takes_any_number = true;
    return std::move(*this);
  }
  /// The ranks of a run may have different values, such as the path of a file on each machine, or a number of threads.
  /// All other fields are compared before the first step.
  Field&& ranks_may_differ() && {
    may_differ = true;
    return std::move(*this);
  }
  /// Help says "required" where the default is empty, else "not empty".
  Field&& not_empty() && {
    return add([](const T& value) { return !value.empty(); }, "set", true);
  }

 private:
  Field&& add(std::function<bool(const T&)> holds, std::string rule, bool in_help) {
    rules.push_back({[holds = std::move(holds)](const void* value) { return holds(*static_cast<const T*>(value)); },
                     std::move(rule), in_help});
    return std::move(*this);
  }

  template <class N>
  static std::string text(N number) {
    if constexpr (std::is_integral_v<N>) return std::to_string(number);
    if constexpr (!std::is_integral_v<N>) return number_text(number);
  }
};

/// The fields of an options struct, in order.
using FieldList = std::vector<AnyField>;

/// Each part is a field, or a list of fields that several structs share.
template <class... Parts>
FieldList fields(Parts... parts) {
  FieldList all;
  const auto add = [&all](auto& part) {
    if constexpr (std::is_same_v<decltype(part), FieldList&>) {
      all.insert(all.end(), part.begin(), part.end());
    } else {
      all.push_back(std::move(static_cast<AnyField&>(part)));
    }
  };
  (add(parts), ...);
  return all;
}

template <class Options>
concept HasFields = requires {
  Options::fields();
};

/// The options of classes that take none.
struct NoOptions {
  static FieldList fields() { return {}; }
};

namespace detail {
/// "set" and "set, and > 0" of an option whose default is not valid are "required" and "required, > 0".
[[nodiscard]] std::string rule_in_help(const std::string& rule, bool default_is_valid);

bool unknown_keys(const ConfigNode& node, const std::vector<std::string>& known, const std::string& path,
                  Problems& problems);
std::vector<std::string> names_of(const FieldList& fields);
std::vector<FieldInfo> describe(const FieldList& fields, const void* defaults);
bool check(const FieldList& fields, const void* options, const Mark& mark, const std::string& path, Problems& problems);
bool read(const ConfigNode& node, const FieldList& fields, void* options, const std::string& path, Problems& problems);
ConfigNode write(const FieldList& fields, const void* options);

template <class T>
bool check_inside(const T& value, const Mark& mark, const std::string& path, Problems& problems) {
  if constexpr (HasFields<T>) return check(T::fields(), &value, mark, path, problems);
  if constexpr (!HasFields<T>) return true;
}

template <class T>
bool check_inside(const std::optional<T>& value, const Mark& mark, const std::string& path, Problems& problems) {
  return !value || check_inside(*value, mark, path, problems);
}

template <class T>
bool check_inside(const std::vector<T>& values, const Mark& mark, const std::string& path, Problems& problems) {
  bool good = true;
  if constexpr (HasFields<T>) {
    for (size_t i = 0; i < values.size(); ++i) {
      good = check_inside(values[i], mark, index_path(path, i), problems) && good;
    }
  }
  return good;
}

template <class T>
inline constexpr ValueOperations kValueOperations = {
    [] { return ValueType<T>::name(); },
    [](const ConfigNode& node, void* value, const std::string& path, Problems& problems) {
      return ValueType<T>::read(node, *static_cast<T*>(value), path, problems);
    },
    [](const void* value) { return ValueType<T>::write(*static_cast<const T*>(value)); },
    [](const void* value) { return detail::first_non_finite(*static_cast<const T*>(value)); },
    [](const void* value, const Mark& mark, const std::string& path, Problems& problems) {
      return detail::check_inside(*static_cast<const T*>(value), mark, path, problems);
    },
};

// The member's distance from the beginning of its struct: offsetof for a pointer to a member.
template <class Options, class T>
size_t offset_of(T Options::*member) {
  alignas(Options) std::byte memory[sizeof(Options)];
  const auto* options = reinterpret_cast<const Options*>(memory);
  return static_cast<size_t>(reinterpret_cast<const std::byte*>(&(options->*member)) - memory);
}
}  // namespace detail

/// A field of the struct `Options`, which must be the first base class of any struct that inherits it.
template <class Options, class T>
Field<T> field(const char* name, T Options::*member, const char* doc) {
  static_assert(HasValueType<T>,
                "levin::field: an option is bool, int, int64_t, double, std::string, an enum with EnumNames, a struct "
                "with fields(), Seconds, ByteSize, Component<T>, or a std::optional, vector, array, map or variant of "
                "these; specialise levin::ValueType for a type of your own");
  return {{name, doc, detail::offset_of(member), &detail::kValueOperations<T>}};
}

/// The names of all fields, in order.
template <HasFields Options>
std::vector<std::string> field_names() {
  return detail::names_of(Options::fields());
}

/// Each field for help: name, type, default, meaning.
template <HasFields Options>
std::vector<FieldInfo> describe_options() {
  const Options defaults{};
  return detail::describe(Options::fields(), &defaults);
}

/// Adds a problem for every field out of range, also in nested structs; `path` is how the user reaches the
/// struct ("EarlyStoppingOptions"), `mark` where it was written. True if there was none.
template <HasFields Options>
bool check_options(const Options& options, const std::string& path, Problems& problems, const Mark& mark = {}) {
  return detail::check(Options::fields(), &options, mark, path, problems);
}

/// Returns `options` if all fields are in range; throws ConfigError naming each that is not. For constructors.
template <HasFields Options>
Options checked(Options options, const std::string& path) {
  Problems problems;
  check_options(options, path, problems);
  problems.throw_if_any();
  return options;
}

/// Fills `options` from a map (null: nothing set); unknown keys, wrong types and ranges become problems.
template <HasFields Options>
bool read_options(const ConfigNode& node, Options& options, const std::string& path, Problems& problems) {
  return detail::read(node, Options::fields(), &options, path, problems);
}

/// Returns all fields as a map, which reads back to the same options.
template <HasFields Options>
ConfigNode write_options(const Options& options) {
  return detail::write(Options::fields(), &options);
}

/// Options structs nest.
template <HasFields Options>
struct ValueType<Options> {
  static std::string name() { return "map"; }
  static bool read(const ConfigNode& node, Options& value, const std::string& path, Problems& problems) {
    return read_options(node, value, path, problems);
  }
  static ConfigNode write(const Options& value) { return write_options(value); }
};

}  // namespace levin
