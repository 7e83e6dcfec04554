// Classes that YAML may name. Built-ins are added in builtins/, one line each; a user's own class by
// LEVIN_REGISTER_CALLBACK and its siblings in the user's program. Built-ins of a part of Levin (core/process/parts.h)
// are added when the first of them is looked up.
//
// A registered class T has `using Options = TOptions;` (a struct with fields()) and a constructor T(TOptions),
// or no Options and a default constructor.
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// Registers Levin's own classes (builtins/core.cpp); the Trainer and the command line call it. Call it
/// yourself before reading options that name classes. Throws Error if a class of the program has the name of one of
/// them.
void add_builtins();

/// A class by name with its options as written: {class_path: X, init_args: {…}}, or just X.
struct ClassSpec {
  std::string class_path = "";
  ConfigNode init_args = {};
  Mark mark = {};

  // Defined in the .cpp file, so that programs do not compile them.
  ClassSpec();
  ClassSpec(std::string name, ConfigNode args, Mark written_at = {});
  ClassSpec(const ClassSpec& other);
  ClassSpec(ClassSpec&& other) noexcept;
  ClassSpec& operator=(const ClassSpec& other);
  ClassSpec& operator=(ClassSpec&& other) noexcept;
  ~ClassSpec();

  [[nodiscard]] bool empty() const { return class_path.empty(); }
  /// Returns the part after the last dot: "lightning.pytorch.callbacks.EarlyStopping" names EarlyStopping.
  [[nodiscard]] std::string short_name() const;
};

template <>
struct ValueType<ClassSpec> {
  static std::string name() { return "class"; }
  static bool read(const ConfigNode& node, ClassSpec& value, const std::string& path, Problems& problems);
  static ConfigNode write(const ClassSpec& value);
};

/// A registered class: its name, documentation and options, independent of its interface.
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
/// T::Options, or NoOptions for a class without options.
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
/// Prints the note that a class is an alias. Set by Console; null: nothing is printed.
extern std::atomic<void (*)(const std::string& text)> print_alias_note;
/// Resolves an alias to its class and options; calls print_alias_note.
ClassSpec without_alias(const std::string& kind, const ClassSpec& spec, const ClassSpec& stands_for);
std::string unknown_class(const std::string& kind, const std::string& name, const std::vector<std::string>& known);

/// Opens the part of Levin that has the class `name` of this kind, or, for "", all parts with classes of this kind.
/// Returns why a part could not be opened; "" if it could, or if none has the class. Set by add_builtins().
extern std::atomic<std::string (*)(const std::string& kind, const std::string& name)> open_part;
std::string open_part_of(const std::string& kind, const std::string& name);

/// The registry of an interface, made by the first call in the process: shared libraries have copies
/// of a template's static variables where they are loaded with local symbols.
void* registry_of(std::type_index interface, void* (*make)());
/// Held while classes are looked up and added. A part adds its classes while it is looked for, in the same thread.
std::recursive_mutex& registry_mutex();
/// True while a part adds its classes, guarded by registry_mutex(): no part is opened for them, and each takes its
/// place by its name, so that the order does not depend on when parts are opened.
extern bool part_is_adding;
/// Remembers the version of LibTorch with which a file that registers a class was compiled, as LEVIN_TEXT_OF has it.
void note_torch_version(const std::string& quoted);
/// Returns the versions noted since the last call.
std::vector<std::string> take_torch_versions();
/// Alphabetical order, regardless of case.
bool comes_before(const std::string& one, const std::string& other);
}  // namespace detail

/// All classes of one interface by name. Messages call them by `Interface::registry_name()` ("callback"). Filled before
/// main(), by plugins, and by the parts of Levin that are opened. Thread-safe, except entries() while classes are
/// added.
template <class Interface>
class Registry {
 public:
  /// A registered class, and the function that makes an object of it.
  struct Entry : ClassEntry {
    std::function<std::shared_ptr<Interface>(const ConfigNode& init_args, const std::string& path)> make;
  };

  static Registry& instance() {
    static auto* registry =
        static_cast<Registry*>(detail::registry_of(typeid(Interface), [] { return static_cast<void*>(new Registry); }));
    return *registry;
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

  /// The class of this name, from a part of Levin that is opened for it where there is one; null: unknown.
  [[nodiscard]] const Entry* find(const std::string& name) const {
    const std::lock_guard lock(detail::registry_mutex());
    if (const Entry* entry = find_added(name)) return entry;
    return detail::open_part_of(Interface::registry_name(), name).empty() ? find_added(name) : nullptr;
  }

  /// The same among the classes that have been added so far: opens nothing.
  [[nodiscard]] const Entry* find_added(const std::string& name) const {
    const std::lock_guard lock(detail::registry_mutex());
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

  /// The aliases, in alphabetical order.
  [[nodiscard]] std::vector<std::string> aliases() const {
    std::vector<std::string> names;
    for (const auto& [alias, spec] : aliases_) names.push_back(alias);
    return names;
  }

  /// Returns the class that an alias stands for; "" if the name is not an alias.
  [[nodiscard]] std::string class_of_alias(const std::string& alias) const {
    const auto found = aliases_.find(alias);
    return found == aliases_.end() ? "" : found->second.class_path;
  }

  /// All classes, including the classes of every installed part of Levin.
  [[nodiscard]] const std::list<Entry>& entries() const {
    (void)detail::open_part_of(Interface::registry_name(), "");
    return entries_;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : entries()) names.push_back(entry.name);
    return names;
  }

  /// The spec with every option filled in; an unknown class or bad options become problems.
  ClassSpec resolve(const ClassSpec& spec, const std::string& path, Problems& problems) const {
    const Entry* entry = find(spec.short_name());
    if (entry == nullptr) {
      if (const auto other = aliases_.find(spec.short_name()); other != aliases_.end()) {
        return resolve(detail::without_alias(Interface::registry_name(), spec, other->second), path, problems);
      }
      const std::string missing = detail::open_part_of(Interface::registry_name(), spec.short_name());
      problems.add(
          spec.mark, path,
          missing.empty() ? detail::unknown_class(Interface::registry_name(), spec.class_path, names()) : missing);
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
    if constexpr (requires { set_made_from(*object, resolved); }) set_made_from(*object, resolved);
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
    const std::lock_guard lock(detail::registry_mutex());
    if (const Entry* first = find(name)) detail::duplicate_class(Interface::registry_name(), *first, entry);
    auto place = entries_.end();
    if (detail::part_is_adding) {
      place = entries_.begin();
      while (place != entries_.end() && !detail::comes_before(name, place->name)) ++place;
    }
    entries_.insert(place, std::move(entry));
  }

  std::list<Entry> entries_;  // whose entries stay where they are when others are added
  std::map<std::string, ClassSpec> aliases_;
};

namespace detail {
[[nodiscard]] std::string readable_type_name(const std::type_info& type);

/// Whether a Component may copy a T that the caller keeps. Interfaces of objects with a state say no.
template <class T>
constexpr bool may_copy() {
  if constexpr (requires { T::kOptionsMayCopy; }) return T::kOptionsMayCopy;
  return true;
}
}  // namespace detail

/// A part of a run as its user specifies it: an object, or the name of a registered class with options. C++ and YAML
/// thus share one field:
///   .strategy = "ddp"
///   .callbacks = {EarlyStopping({.monitor = "val_loss"}), my_shared_ptr}
/// object() throws ConfigError for a class that is not registered or options that it does not take.
template <class Interface>
class Component {
 public:
  Component() = default;
  /// A registered class by name; created at first use.
  Component(const char* name) { spec_.class_path = name; }             // NOLINT(google-explicit-constructor)
  Component(std::string name) { spec_.class_path = std::move(name); }  // NOLINT(google-explicit-constructor)
  Component(ClassSpec spec) : spec_(std::move(spec)) {}                // NOLINT(google-explicit-constructor)
  /// An object by value.
  template <class T>
  requires std::derived_from<std::decay_t<T>, Interface> Component(T&& object)  // NOLINT(google-explicit-constructor)
      : object_(std::make_shared<std::decay_t<T>>(std::forward<T>(object))) {
    static_assert(!std::is_lvalue_reference_v<T> || detail::may_copy<std::decay_t<T>>(),
                  "the run would use a copy of this object, and yours would not change: make it with "
                  "std::make_shared and pass the std::shared_ptr, or pass std::move(object)");
  }
  /// An object that the caller keeps using.
  template <class T>
  requires std::derived_from<T, Interface> Component(std::shared_ptr<T> object)
      : object_(std::move(object)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool empty() const { return object_ == nullptr && spec_.empty(); }
  [[nodiscard]] bool is_name(const std::string& name) const { return object_ == nullptr && spec_.class_path == name; }

  /// The object; created by the registry if only a name was given. `path` is shown in errors.
  std::shared_ptr<Interface> object(const std::string& path) {
    if (object_ == nullptr && !spec_.empty()) object_ = Registry<Interface>::instance().make(spec_, path);
    return object_;
  }

  /// Its description in a saved configuration; for an object created in C++ only the class is known.
  [[nodiscard]] ClassSpec spec() const {
    if (!spec_.empty() || object_ == nullptr) return spec_;
    const Interface& made = *object_;
    return {detail::readable_type_name(typeid(made)), {}, {}};
  }

 private:
  std::shared_ptr<Interface> object_ = nullptr;
  ClassSpec spec_ = {};
};

/// A list of components, in the order in which the user gave them.
template <class Interface>
class ComponentList {
 public:
  ComponentList() = default;
  ComponentList(std::initializer_list<Component<Interface>> items) : items_(items) {}
  /// A single one needs no braces.
  template <class T>
  requires(!std::same_as<std::decay_t<T>, ComponentList> && std::convertible_to<T, Component<Interface>>)
      ComponentList(T&& item)
      : items_{Component<Interface>(std::forward<T>(item))} {}  // NOLINT(google-explicit-constructor)

  void push_back(Component<Interface> item) { items_.push_back(std::move(item)); }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] size_t size() const { return items_.size(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  [[nodiscard]] auto begin() const { return items_.begin(); }
  [[nodiscard]] auto end() const { return items_.end(); }

 private:
  std::vector<Component<Interface>> items_ = {};
};

template <class Interface>
struct ValueType<Component<Interface>> {
  static std::string name() { return Interface::registry_name(); }
  static bool read(const ConfigNode& node, Component<Interface>& value, const std::string& path, Problems& problems) {
    value = Component<Interface>();
    if (node.is_null()) return true;
    ClassSpec spec;
    if (!ValueType<ClassSpec>::read(node, spec, path, problems)) return false;
    const size_t before = problems.size();
    if (!spec.empty() && spec.class_path != "auto")
      spec = Registry<Interface>::instance().resolve(spec, path, problems);
    value = Component<Interface>(std::move(spec));
    return problems.size() == before;
  }
  static ConfigNode write(const Component<Interface>& value) { return ValueType<ClassSpec>::write(value.spec()); }
};

template <class Interface>
struct ValueType<ComponentList<Interface>> {
  static std::string name() { return std::string("list of ") + Interface::registry_name() + "s"; }
  static bool read(const ConfigNode& node, ComponentList<Interface>& value, const std::string& path,
                   Problems& problems) {
    value = ComponentList<Interface>();
    if (node.is_null()) return true;
    std::vector<Component<Interface>> items;
    if (!node.is_list()) {
      items.emplace_back();
      if (!ValueType<Component<Interface>>::read(node, items.back(), path, problems)) return false;
    } else if (!ValueType<std::vector<Component<Interface>>>::read(node, items, path, problems)) {
      return false;
    }
    for (auto& item : items) value.push_back(std::move(item));
    return true;
  }
  static ConfigNode write(const ComponentList<Interface>& value) {
    ConfigNode node = ConfigNode::list();
    for (const auto& item : value) node.items.push_back(ValueType<Component<Interface>>::write(item));
    return node;
  }
};

}  // namespace levin

// The expansion as text: "\"2.11.0\"" for TORCH_VERSION, and "TORCH_VERSION" in a file that does not include it.
#define LEVIN_TEXT_OF(macro) LEVIN_QUOTED(macro)
#define LEVIN_QUOTED(text) #text

#define LEVIN_REGISTER(Interface, Class, doc)                                                               \
  [[maybe_unused]] static const bool levin_registered_##Class = [] {                                        \
    ::levin::detail::note_torch_version(LEVIN_TEXT_OF(TORCH_VERSION));                                      \
    ::levin::Registry<::levin::Interface>::instance().template add<Class>(#Class, doc, __FILE__, __LINE__); \
    return true;                                                                                            \
  }()

#define LEVIN_REGISTER_MODEL(Class, doc) LEVIN_REGISTER(LightningModule, Class, doc)
#define LEVIN_REGISTER_DATA(Class, doc) LEVIN_REGISTER(DataModule, Class, doc)
#define LEVIN_REGISTER_CALLBACK(Class, doc) LEVIN_REGISTER(Callback, Class, doc)
#define LEVIN_REGISTER_LOGGER(Class, doc) LEVIN_REGISTER(Logger, Class, doc)
#define LEVIN_REGISTER_PRECISION(Class, doc) LEVIN_REGISTER(Precision, Class, doc)
#define LEVIN_REGISTER_OPTIMIZER(Class, doc) LEVIN_REGISTER(Optimizer, Class, doc)
#define LEVIN_REGISTER_LR_SCHEDULER(Class, doc) LEVIN_REGISTER(LRScheduler, Class, doc)
