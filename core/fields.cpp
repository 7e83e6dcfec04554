#include "levin/core/fields.h"

#include <algorithm>

namespace levin::detail {

bool unknown_keys(const ConfigNode& node, const std::vector<std::string>& known, const std::string& path,
                  Problems& problems) {
  bool good = true;
  for (const auto& entry : node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    good = false;
    problems.add(entry.key_mark, join_path(path, entry.key),
                 "unknown key \"" + entry.key + "\"." + did_you_mean(entry.key, known) + " Known: " + join(known) + ".");
  }
  return good;
}

}  // namespace levin::detail
