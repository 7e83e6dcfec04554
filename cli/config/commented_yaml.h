// YAML with comments: a tree with comments between its entries.
#pragma once

#include <string>

#include "levin/core/options/config_node.h"

namespace levin {

/// Adds a comment, of one or more lines, after the last entry of a list or a map.
void add_comment(ConfigNode& container, const std::string& text);

/// Whether a list or a map has more than comments.
[[nodiscard]] bool has_entries(const ConfigNode& container);

/// Block-style YAML with the comments, which reads back to the tree without them. If a list or a map has only comments,
/// they replace its key.
[[nodiscard]] std::string to_commented_yaml(const ConfigNode& node, int indent = 0);

}  // namespace levin
