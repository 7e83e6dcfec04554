#include "levin/core/options/registry.h"

#include <cxxabi.h>
#include <strings.h>

#include <cstdlib>

#include "levin/core/options/error.h"

namespace levin {

ClassSpec::ClassSpec() = default;
ClassSpec::ClassSpec(std::string name, ConfigNode args, Mark written_at)
    : class_path(std::move(name)), init_args(std::move(args)), mark(std::move(written_at)) {}
ClassSpec::ClassSpec(const ClassSpec& other) = default;
ClassSpec::ClassSpec(ClassSpec&& other) noexcept = default;
ClassSpec& ClassSpec::operator=(const ClassSpec& other) = default;
ClassSpec& ClassSpec::operator=(ClassSpec&& other) noexcept = default;
ClassSpec::~ClassSpec() = default;

std::string ClassSpec::short_name() const {
  const size_t dot = class_path.rfind('.');
  return dot == std::string::npos ? class_path : class_path.substr(dot + 1);
}

bool ValueType<ClassSpec>::read(const ConfigNode& node, ClassSpec& value, const std::string& path, Problems& problems) {
  value = ClassSpec{};
  value.mark = node.mark;
  if (node.is_scalar()) {
    value.class_path = node.text;
    return !value.empty() || detail::expected("a class name", node, path, problems);
  }
  if (!node.is_map())
    return detail::expected("a class name, or a map with class_path and init_args", node, path, problems);
  bool good = detail::unknown_keys(node, {"class_path", "init_args"}, path, problems);
  const ConfigNode* name = node.find("class_path");
  if (name == nullptr) {
    if (good) problems.add(node.mark, path, "class_path is missing: write {class_path: NAME, init_args: {…}}.");
    return false;
  }
  good = ValueType<std::string>::read(*name, value.class_path, join_path(path, "class_path"), problems) && good;
  value.mark = name->mark;
  if (value.empty() && name->is_scalar())
    good = detail::expected("a class name", *name, join_path(path, "class_path"), problems);
  if (const ConfigNode* args = node.find("init_args")) value.init_args = *args;
  return good;
}

ConfigNode ValueType<ClassSpec>::write(const ClassSpec& value) {
  if (value.empty()) return ConfigNode{};
  ConfigNode node = ConfigNode::map();
  node.set("class_path", ConfigNode::scalar(value.class_path, true));
  if (!value.init_args.is_null() && !value.init_args.entries.empty()) node.set("init_args", value.init_args);
  return node;
}

namespace detail {

std::atomic<void (*)(const std::string& text)> print_alias_note = nullptr;
std::atomic<std::string (*)(const std::string& kind, const std::string& name)> open_part = nullptr;

bool part_is_adding = false;

std::string open_part_of(const std::string& kind, const std::string& name) {
  const std::lock_guard lock(registry_mutex());
  const auto open = open_part.load();
  return open == nullptr || part_is_adding ? "" : open(kind, name);
}

bool comes_before(const std::string& one, const std::string& other) {
  return ::strcasecmp(one.c_str(), other.c_str()) < 0;
}

std::recursive_mutex& registry_mutex() {
  static auto* mutex = new std::recursive_mutex;  // never destroyed, like the registries
  return *mutex;
}

void* registry_of(std::type_index interface, void* (*make)()) {
  static auto* all = new std::map<std::type_index, void*>;
  const std::lock_guard lock(registry_mutex());
  void*& registry = (*all)[interface];
  if (registry == nullptr) registry = make();
  return registry;
}

namespace {

std::vector<std::string>& noted_torch_versions() {
  static auto* versions = new std::vector<std::string>;
  return *versions;
}

}  // namespace

void note_torch_version(const std::string& quoted) {
  const std::lock_guard lock(registry_mutex());
  if (quoted.starts_with('"')) noted_torch_versions().push_back(quoted.substr(1, quoted.size() - 2));
}

std::vector<std::string> take_torch_versions() {
  const std::lock_guard lock(registry_mutex());
  return std::exchange(noted_torch_versions(), {});
}

void duplicate_class(const std::string& kind, const ClassEntry& first, const ClassEntry& second) {
  throw Error("two " + kind + "s are registered as \"" + first.name + "\": " + first.file + ":" +
              std::to_string(first.line) + " and " + second.file + ":" + std::to_string(second.line) +
              ". Rename one of them.");
}

ClassSpec without_alias(const std::string& kind, const ClassSpec& spec, const ClassSpec& stands_for) {
  ConfigNode options = stands_for.init_args.is_null() ? ConfigNode::map() : stands_for.init_args;
  std::string with;
  for (const auto& entry : options.entries) {
    with += (with.empty() ? " with " : ", ") + entry.key + ": " + entry.value.shown();
  }
  for (const auto& entry : spec.init_args.entries) options.set(entry.key, entry.value, entry.key_mark);
  if (const auto print = print_alias_note.load()) {
    print(kind + " \"" + spec.class_path + "\" is called " + stands_for.class_path + with +
          " here. It is taken as that.");
  }
  return {stands_for.class_path, std::move(options), spec.mark};
}

std::string unknown_class(const std::string& kind, const std::string& name, const std::vector<std::string>& known) {
  const bool is_close = !nearest_name(name, known).empty();
  return "unknown " + kind + " \"" + name + "\"." + known_names(name, known) +
         (is_close ? ""
                   : " A class of your own must be registered in this program, or in a library that plugins names.");
}

}  // namespace detail

}  // namespace levin

namespace levin::detail {

std::string readable_type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  std::string name = status == 0 ? text.get() : type.name();
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace levin::detail
