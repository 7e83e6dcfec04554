#include "levin/core/fields.h"

#include <algorithm>

#include "levin/core/known_names.h"

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
  constexpr size_t kMostShown = 20;  // of a file with 50,000 wrong keys
  size_t unknown = 0;
  for (const auto& entry : node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    if (++unknown > kMostShown) continue;
    problems.add(entry.key_mark, join_path(path, cut_text(entry.key)),
                 "unknown key \"" + cut_text(entry.key) + "\"." + known_names(entry.key, known));
  }
  if (unknown > kMostShown) {
    problems.add(node.mark, path, std::to_string(unknown - kMostShown) + " more unknown keys.");
  }
  return unknown == 0;
}

}  // namespace levin::detail
