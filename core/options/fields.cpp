#include "levin/core/options/fields.h"

#include <algorithm>

#include "levin/core/options/error.h"

namespace levin::detail {

std::string rule_in_help(const std::string& rule, bool default_is_valid) {
  const std::string more = ", and ";
  const std::string head = rule.substr(0, rule.find(more));
  if (head != "set") return rule;
  const std::string rest = head.size() == rule.size() ? "" : rule.substr(head.size() + more.size());
  if (!default_is_valid) return rest.empty() ? "required" : "required, " + rest;
  return rest.empty() ? "not empty" : rest;
}

bool unknown_keys(const ConfigNode& node, const std::vector<std::string>& known, const std::string& path,
                  Problems& problems) {
  constexpr size_t kMaxShown = 20;  // a file may have 50,000 wrong keys
  size_t unknown = 0;
  for (const auto& entry : node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    if (++unknown > kMaxShown) continue;
    problems.add(entry.key_mark, join_path(path, cut_text(entry.key)),
                 "unknown key \"" + cut_text(entry.key) + "\"." + known_names(entry.key, known));
  }
  if (unknown > kMaxShown) {
    problems.add(node.mark, path, std::to_string(unknown - kMaxShown) + " more unknown keys.");
  }
  return unknown == 0;
}

namespace {

bool holds_nul(const ConfigNode& node) {
  const auto in_entry = [](const ConfigEntry& entry) {
    return entry.key.find('\0') != std::string::npos || holds_nul(entry.value);
  };
  return node.text.find('\0') != std::string::npos || std::any_of(node.items.begin(), node.items.end(), holds_nul) ||
         std::any_of(node.entries.begin(), node.entries.end(), in_entry);
}

// For the system a path ends at its first NUL byte, and no other option needs one.
bool is_text_with_nul(const AnyField& field, const void* value) {
  return field.operations->name().find(ValueType<std::string>::name()) != std::string::npos &&
         holds_nul(field.operations->write(value));
}

bool check_rules(const AnyField& field, const void* value, const Mark& mark, const std::string& path,
                 Problems& problems) {
  if (const auto number = field.operations->first_non_finite(value); number && !field.takes_any_number) {
    problems.add(mark, path, "must be finite, got " + number_text(*number) + ".");
    return false;
  }
  if (is_text_with_nul(field, value)) {
    problems.add(mark, path, "must not hold a NUL byte, got " + field.operations->write(value).shown() + ".");
    return false;
  }
  bool good = true;
  for (const auto& rule : field.rules) {
    if (rule.holds(value)) continue;
    good = false;
    problems.add(mark, path, "must be " + rule.text + ", got " + field.operations->write(value).shown() + ".");
  }
  return good;
}

// Checks the field's own rules and the rules of all options structs within its value.
bool check_field(const AnyField& field, const void* options, const Mark& mark, const std::string& path,
                 Problems& problems) {
  const bool good = check_rules(field, field.in(options), mark, path, problems);
  return field.operations->check_inside(field.in(options), mark, path, problems) && good;
}

}  // namespace

std::vector<std::string> names_of(const FieldList& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) names.emplace_back(field.name);
  return names;
}

std::vector<FieldInfo> describe(const FieldList& fields, const void* defaults) {
  std::vector<FieldInfo> infos;
  for (const auto& field : fields) {
    std::string text = to_yaml(field.operations->write(field.in(defaults)));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::string doc = field.doc;
    for (const auto& rule : field.rules) {
      if (rule.in_help) doc += "; " + rule_in_help(rule.text, rule.holds(field.in(defaults)));
    }
    infos.push_back({field.name, field.operations->name(), text, doc});
  }
  return infos;
}

bool check(const FieldList& fields, const void* options, const Mark& mark, const std::string& path,
           Problems& problems) {
  bool good = true;
  for (const auto& field : fields) {
    good = check_field(field, options, mark, join_path(path, field.name), problems) && good;
  }
  return good;
}

bool read(const ConfigNode& node, const FieldList& fields, void* options, const std::string& path, Problems& problems) {
  if (node.is_null()) return check(fields, options, node.mark, path, problems);
  if (!node.is_map()) return expected("a map", node, path, problems);
  bool good = unknown_keys(node, names_of(fields), path, problems);
  for (const auto& field : fields) {
    const ConfigNode* value = node.find(field.name);
    const std::string here = join_path(path, field.name);
    if (value == nullptr) {
      good = check_field(field, options, node.mark, here, problems) && good;
    } else if (field.operations->read(*value, field.in(options), here, problems)) {
      good = check_rules(field, field.in(options), value->mark, here, problems) && good;
    } else {
      good = false;
    }
  }
  return good;
}

ConfigNode write(const FieldList& fields, const void* options) {
  ConfigNode node = ConfigNode::map();
  for (const auto& field : fields) {
    node.set(field.name, field.operations->write(field.in(options))).may_differ = field.may_differ;
  }
  return node;
}

}  // namespace levin::detail
