// Classes that YAML may name. Built-ins are added in builtins.cpp, one line each; a user's own class by
// LEVIN_REGISTER_CALLBACK and its siblings in the user's program.
//
// A registered class T has `using Options = TOptions;` (a struct with fields()) and a constructor T(TOptions),
// or no Options and a default constructor.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "levin/core/fields.h"

namespace levin {

/// Registers Levin's own classes (builtins.cpp); the Trainer and the command line call it. Call it
/// yourself before reading options that name classes.
void add_builtins();

/// A class by name with its options as written: {class_path: X, init_args: {…}}, or just X.
struct ClassSpec {
  std::string class_path = "";
  ConfigNode init_args = {};
  Mark mark = {};

  [[nodiscard]] bool empty() const { return class_path.empty(); }
  /// The part after the last dot: "lightning.pytorch.callbacks.EarlyStopping" names EarlyStopping.
  [[nodiscard]] std::string short_name() const;
};

template <>
struct ValueType<ClassSpec> {
  static std::string name() { return "class"; }
  static bool read(const ConfigNode& node, ClassSpec& value, const std::string& path, Problems& problems);
  static ConfigNode write(const ClassSpec& value);
};

/// The entry of a class in a registry, whatever its interface.
struct ClassEntry {
  std::string name;
  std::string doc;
  std::string file;
  int line = 0;
  std::vector<FieldInfo> (*describe)() = nullptr;
  /// Reads init_args into the options and writes all of them back, defaults included; problems are collected.
  ConfigNode (*resolve)(const ConfigNode& init_args, const std::string& path, Problems& problems) = nullptr;
};

namespace detail {
template <class T>
struct OptionsOf {
  using type = NoOptions;
};
template <class T>
requires requires {
  typename T::Options;
}
struct OptionsOf<T> {
  using type = typename T::Options;
};

template <class T>
ConfigNode resolve_options(const ConfigNode& init_args, const std::string& path, Problems& problems) {
  typename OptionsOf<T>::type options{};
  if (!read_options(init_args, options, path, problems)) return init_args;
  return write_options(options);
}
[[noreturn]] void duplicate_class(const std::string& kind, const ClassEntry& first, const ClassEntry& second);
/// Resolves an alias to its class and options; prints a note once.
ClassSpec without_alias(const std::string& kind, const ClassSpec& spec, const ClassSpec& stands_for);
std::string unknown_class(const std::string& kind, const std::string& name, const std::vector<std::string>& known);
}  // namespace detail

/// All classes of one interface by name. `Interface::registry_name()` says what messages call them ("callback").
template <class Interface>
class Registry {
 public:
  struct Entry : ClassEntry {
    std::function<std::shared_ptr<Interface>(const ConfigNode& init_args, const std::string& path)> make;
  };

  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  /// Adds T under `name`; throws Error naming both places if the name is taken. clang has std::source_location from
  /// version 16 on only.
  template <class T>
  void add(const std::string& name, const std::string& doc, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) {
    static_assert(std::derived_from<T, Interface>,
                  "levin: a registered class must derive publicly from the interface that the macro names: "
                  "LightningModule for LEVIN_REGISTER_MODEL, DataModule for _DATA, Callback for _CALLBACK, Logger, "
                  "Precision, Optimizer or LRScheduler for the others");
    if constexpr (std::derived_from<T, Interface>) add_class<T>(name, doc, file, line);
  }

  [[nodiscard]] const Entry* find(const std::string& name) const {
    for (const auto& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  /// An alias, such as the class's name in another library: a run that uses it gets a note. `init_args`: options
  /// implied by the alias; given options take precedence.
  void add_alias(const std::string& alias, const std::string& name, ConfigNode init_args = {}) {
    aliases_[alias] = {name, std::move(init_args), {}};
  }

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : entries_) names.push_back(entry.name);
    return names;
  }

  /// The spec with every option filled in; an unknown class or bad options become problems.
  ClassSpec resolve(const ClassSpec& spec, const std::string& path, Problems& problems) const {
    const Entry* entry = find(spec.short_name());
    if (entry == nullptr) {
      if (const auto other = aliases_.find(spec.short_name()); other != aliases_.end()) {
        return resolve(detail::without_alias(Interface::registry_name(), spec, other->second), path, problems);
      }
      problems.add(spec.mark, path, detail::unknown_class(Interface::registry_name(), spec.class_path, names()));
      return spec;
    }
    return {entry->name, entry->resolve(spec.init_args, join_path(path, "init_args"), problems), spec.mark};
  }

  /// Builds the object; throws ConfigError if the class is unknown or its options are wrong.
  [[nodiscard]] std::shared_ptr<Interface> make(const ClassSpec& spec, const std::string& path) const {
    Problems problems;
    const ClassSpec resolved = resolve(spec, path, problems);
    problems.throw_if_any();
    const auto object = find(resolved.class_path)->make(resolved.init_args, join_path(path, "init_args"));
    // Kept so that another object of this kind (a replica) can be created later.
    if constexpr (requires { object->set_made_from(resolved); }) object->set_made_from(resolved);
    return object;
  }

 private:
  template <class T>
  void add_class(const std::string& name, const std::string& doc, const char* file, int line) {
    using Options = typename detail::OptionsOf<T>::type;
    static_assert(std::is_same_v<Options, NoOptions> || HasFields<Options>,
                  "levin: the Options of a registered class must be a struct with a static function fields()");
    static_assert(
        std::is_same_v<Options, NoOptions> ? std::is_default_constructible_v<T> : std::is_constructible_v<T, Options>,
        "levin: a registered class needs a public constructor that takes its Options, or none if it has no "
        "Options, and must override all pure virtual functions of its interface");
    Entry entry;
    entry.name = name;
    entry.doc = doc;
    entry.file = file;
    entry.line = line;
    entry.describe = &describe_options<Options>;
    entry.resolve = &detail::resolve_options<T>;
    entry.make = [](const ConfigNode& init_args, const std::string& path) -> std::shared_ptr<Interface> {
      Options options{};
      Problems problems;
      read_options(init_args, options, path, problems);
      problems.throw_if_any();
      if constexpr (std::is_same_v<Options, NoOptions>) return std::make_shared<T>();
      if constexpr (!std::is_same_v<Options, NoOptions>) return std::make_shared<T>(options);
    };
    if (const Entry* first = find(name)) detail::duplicate_class(Interface::registry_name(), *first, entry);
    entries_.push_back(std::move(entry));
  }

  std::vector<Entry> entries_;
  std::map<std::string, ClassSpec> aliases_;
};

}  // namespace levin
