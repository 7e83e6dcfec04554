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
// Names in the list are the members' names: a test counts both.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/core/error.h"
#include "levin/core/finite.h"
#include "levin/core/value.h"

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

/// A member of an options struct with its name, its one-line meaning (with unit) and its range.
template <class Options, class T>
struct Field {
  using Value = T;
  const char* name;
  T Options::*member;
  const char* doc;
  struct Rule {
    std::function<bool(const T&)> holds;
    std::string text;
    bool in_help = true;
  };
  std::vector<Rule> rules = {};
  bool takes_any_number = false;
  bool may_differ = false;

  /// The value must satisfy `holds`; `rule` completes the sentence "must be …".
  Field check(std::function<bool(const T&)> holds, std::string rule) && {
    rules.push_back({std::move(holds), std::move(rule)});
    return std::move(*this);
  }
  /// The same for what hardly anybody writes, such as a NUL byte in a path: help does not mention the rule.
  Field check_silently(std::function<bool(const T&)> holds, std::string rule) && {
    rules.push_back({std::move(holds), std::move(rule), false});
    return std::move(*this);
  }
  template <class N>
  Field min(N low) && {
    return std::move(*this).check([low](const T& value) { return value >= low; }, ">= " + text(low));
  }
  template <class N>
  Field max(N high) && {
    return std::move(*this).check([high](const T& value) { return value <= high; }, "<= " + text(high));
  }
  template <class N>
  Field above(N low) && {
    return std::move(*this).check([low](const T& value) { return value > low; }, "> " + text(low));
  }
  template <class N>
  Field below(N high) && {
    return std::move(*this).check([high](const T& value) { return value < high; }, "< " + text(high));
  }
  /// nan and infinities are allowed; all other fields reject them.
  Field any_number() && {
    takes_any_number = true;
    return std::move(*this);
  }
  /// The ranks of a run may have different values, such as the path of a file on each machine, or a number of threads.
  /// All other fields are compared before the first step.
  Field ranks_may_differ() && {
    may_differ = true;
    return std::move(*this);
  }
  /// Help says "required" where the default is empty, else "not empty".
  Field not_empty() && {
    return std::move(*this).check([](const T& value) { return !value.empty(); }, "set");
  }

 private:
  template <class N>
  static std::string text(N number) {
    if constexpr (std::is_integral_v<N>) return std::to_string(number);
    if constexpr (!std::is_integral_v<N>) return number_text(number);
  }
};

template <class Options, class T>
Field<Options, T> field(const char* name, T Options::*member, const char* doc) {
  static_assert(HasValueType<T>,
                "levin::field: an option is bool, int, int64_t, double, std::string, an enum with EnumNames, a struct "
                "with fields(), Seconds, ByteSize, Component<T>, or a std::optional, vector, array, map or variant of "
                "these; specialise levin::ValueType for a type of your own");
  return {name, member, doc};
}

template <class... Fields>
std::tuple<Fields...> fields(Fields... list) {
  return std::make_tuple(std::move(list)...);
}

template <class Options>
concept HasFields = requires {
  Options::fields();
};

/// For classes that take no options.
struct NoOptions {
  static auto fields() { return std::tuple<>(); }
};

/// The names of all fields, in order.
template <HasFields Options>
std::vector<std::string> field_names() {
  std::vector<std::string> names;
  std::apply([&](const auto&... f) { (names.emplace_back(f.name), ...); }, Options::fields());
  return names;
}

namespace detail {
/// "set" and "set, and > 0" of an option whose default is not valid are "required" and "required, > 0".
[[nodiscard]] std::string rule_in_help(const std::string& rule, bool default_is_valid);
}  // namespace detail

/// Each field for help: name, type, default, meaning.
template <HasFields Options>
std::vector<FieldInfo> describe_options() {
  const Options defaults{};
  std::vector<FieldInfo> infos;
  auto describe = [&](const auto& f) {
    using Value = typename std::decay_t<decltype(f)>::Value;
    std::string text = to_yaml(ValueType<Value>::write(defaults.*f.member));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::string doc = f.doc;
    for (const auto& rule : f.rules) {
      if (rule.in_help) doc += "; " + detail::rule_in_help(rule.text, rule.holds(defaults.*f.member));
    }
    infos.push_back({f.name, ValueType<Value>::name(), text, doc});
  };
  std::apply([&](const auto&... f) { (describe(f), ...); }, Options::fields());
  return infos;
}

namespace detail {
template <class Options, class T>
bool check_rules(const Field<Options, T>& f, const Options& options, const Mark& mark, const std::string& path,
                 Problems& problems) {
  if (const auto number = first_non_finite(options.*f.member); number && !f.takes_any_number) {
    problems.add(mark, path, "must be finite, got " + number_text(*number) + ".");
    return false;
  }
  bool good = true;
  for (const auto& rule : f.rules) {
    if (rule.holds(options.*f.member)) continue;
    good = false;
    problems.add(mark, path, "must be " + rule.text + ", got " + ValueType<T>::write(options.*f.member).shown() + ".");
  }
  return good;
}

// The rules of a field and of all options structs within its value.
template <class Options, class T>
bool check_field(const Field<Options, T>& f, const Options& options, const Mark& mark, const std::string& path,
                 Problems& problems);

bool unknown_keys(const ConfigNode& node, const std::vector<std::string>& known, const std::string& path,
                  Problems& problems);
}  // namespace detail

/// Adds a problem for every field out of range, those of nested structs included; `path` is how the user reaches the
/// struct ("EarlyStoppingOptions"), `mark` where it was written. True if there was none.
template <HasFields Options>
bool check_options(const Options& options, const std::string& path, Problems& problems, const Mark& mark = {}) {
  bool good = true;
  auto check = [&](const auto& f) {
    good = detail::check_field(f, options, mark, join_path(path, f.name), problems) && good;
  };
  std::apply([&](const auto&... f) { (check(f), ...); }, Options::fields());
  return good;
}

namespace detail {
template <class T>
bool check_inside(const T& value, const Mark& mark, const std::string& path, Problems& problems) {
  if constexpr (HasFields<T>) return check_options(value, path, problems, mark);
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

template <class Options, class T>
bool check_field(const Field<Options, T>& f, const Options& options, const Mark& mark, const std::string& path,
                 Problems& problems) {
  const bool good = check_rules(f, options, mark, path, problems);
  return check_inside(options.*f.member, mark, path, problems) && good;
}
}  // namespace detail

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
  if (node.is_null()) return check_options(options, path, problems, node.mark);
  if (!node.is_map()) return detail::expected("a map", node, path, problems);
  bool good = detail::unknown_keys(node, field_names<Options>(), path, problems);
  auto read = [&](const auto& f) {
    const ConfigNode* value = node.find(f.name);
    const std::string here = join_path(path, f.name);
    using Value = typename std::decay_t<decltype(f)>::Value;
    if (value == nullptr) {
      good = detail::check_field(f, options, node.mark, here, problems) && good;
    } else if (ValueType<Value>::read(*value, options.*f.member, here, problems)) {
      good = detail::check_rules(f, options, value->mark, here, problems) && good;
    } else {
      good = false;
    }
  };
  std::apply([&](const auto&... f) { (read(f), ...); }, Options::fields());
  return good;
}

/// All fields as a map; reads back to the same options.
template <HasFields Options>
ConfigNode write_options(const Options& options) {
  ConfigNode node = ConfigNode::map();
  auto write = [&](const auto& f) {
    using Value = typename std::decay_t<decltype(f)>::Value;
    node.set(f.name, ValueType<Value>::write(options.*f.member)).may_differ = f.may_differ;
  };
  std::apply([&](const auto&... f) { (write(f), ...); }, Options::fields());
  return node;
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
