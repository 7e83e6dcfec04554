#include "levin/loggers/flat_options.h"

#include "levin/core/options/value.h"

namespace levin {

namespace {

void flatten(const ConfigNode& node, const std::string& key, std::vector<std::pair<std::string, std::string>>& flat) {
  if (node.is_map() && !node.entries.empty()) {
    for (const auto& entry : node.entries) flatten(entry.value, join_path(key, entry.key), flat);
  } else if (node.is_list() && !node.items.empty()) {
    for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], join_path(key, std::to_string(k)), flat);
  } else if (!key.empty()) {
    flat.emplace_back(key, node.is_scalar() ? node.text : node.is_map() ? "{}" : node.is_list() ? "[]" : "null");
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> flat_options(const ConfigNode& options) {
  std::vector<std::pair<std::string, std::string>> flat;
  flatten(options, "", flat);
  return flat;
}

}  // namespace levin
