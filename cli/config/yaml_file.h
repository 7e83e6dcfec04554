// Reads YAML (and JSON, which is YAML) into a ConfigNode that remembers the place of every value.
//
//   Problems problems;
//   ConfigNode config = read_yaml_file("run.yaml", problems);
//   problems.throw_if_any();
//
// Stricter than YAML: duplicate keys, a second document, unknown tags, merge keys and open quotes are errors. Safe on
// a hostile file: its size, nesting and what its aliases grow to are bounded, so it costs under a second.
#pragma once

#include <string>

#include "levin/cli/config/yaml_limits.h"
#include "levin/core/config_node.h"
#include "levin/core/value.h"

namespace levin {

/// The file's map; an empty map if the file is empty or has problems that leave nothing to read.
[[nodiscard]] ConfigNode read_yaml_file(const std::string& path, Problems& problems);

/// The same from memory; `source_name` stands where messages name the file.
[[nodiscard]] ConfigNode read_yaml_text(const std::string& text, const std::string& source_name, Problems& problems);

/// A value as written on a command line: a list or a map if it starts with [ or {, a string if it is quoted, else the
/// plain text itself (so "*.txt" and "a: b" need no quotes). Every mark is `mark`.
[[nodiscard]] ConfigNode read_yaml_value(const std::string& text, const Mark& mark, Problems& problems);

/// Whether `text` can stand in a YAML file: UTF-8 without control characters; if not, a problem at `mark`.
[[nodiscard]] bool check_yaml_characters(const std::string& text, const Mark& mark, Problems& problems);

}  // namespace levin
