// A part of a run as specified by its user: an object, or the name of a registered class with options. C++ and YAML
// thus share one field: `.strategy = "ddp"`, `.callbacks = {EarlyStopping({.monitor = "val_loss"}), my_shared_ptr}`.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "levin/core/registry.h"

namespace levin {

namespace detail {
[[nodiscard]] std::string readable_type_name(const std::type_info& type);
}  // namespace detail

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
      : object_(std::make_shared<std::decay_t<T>>(std::forward<T>(object))) {}
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

/// Components in order.
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
