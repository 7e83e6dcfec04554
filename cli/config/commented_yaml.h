// YAML that a program writes for people: a tree with comments between its entries.
#pragma once

#include <string>

#include "levin/core/config_node.h"

namespace levin {

/// Adds a comment, of one or more lines, behind the last entry of a list or a map.
void add_comment(ConfigNode& container, const std::string& text);

/// Whether a list or a map holds more than comments.
[[nodiscard]] bool has_entries(const ConfigNode& container);

/// Block-style YAML with the comments, which reads back to the tree without them. A list or a map that holds nothing
/// but comments leaves these where its key would stand.
[[nodiscard]] std::string to_commented_yaml(const ConfigNode& node, int indent = 0);

}  // namespace levin
