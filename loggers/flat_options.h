// A tree of options as a flat list, for stores that have only keys and values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/config_node.h"

namespace levin {

/// Returns ("model.lr", "0.1"), ("layers.0", "64"), … in the tree's order; null is "null", an empty list "[]", an
/// empty map "{}".
[[nodiscard]] std::vector<std::pair<std::string, std::string>> flat_options(const ConfigNode& options);

}  // namespace levin
