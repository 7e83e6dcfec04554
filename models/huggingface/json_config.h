// A config.json as the tree that options are read from, and back: keys keep their order, numbers and nulls are written
// as they were.
#pragma once

#include <string>

#include "levin/core/config_node.h"

namespace levin::huggingface {

/// `source`, the file's path, is the mark of every value. Throws ConfigError beginning with it for a text that is no
/// JSON object.
[[nodiscard]] ConfigNode parse_json_config(const std::string& text, const std::string& source);

/// Indented by two, with a newline at the end, as transformers writes it.
[[nodiscard]] std::string json_text(const ConfigNode& node);

}  // namespace levin::huggingface
