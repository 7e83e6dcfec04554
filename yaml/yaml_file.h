// Reads YAML (and JSON, which is YAML) into a ConfigNode with the position of every value.
//
//   Problems problems;
//   ConfigNode config = read_yaml_file("run.yaml", problems);
//   problems.throw_if_any();
//
// Stricter than YAML: duplicate keys, a second document, unknown tags, merge keys and open quotes are errors. Safe for
// malicious files: size, nesting and expansion of aliases are limited, so reading takes under a second.
#pragma once

#include <string>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"
#include "levin/yaml/yaml_limits.h"

namespace levin {

/// The file's map; an empty map if the file is empty or could not be read.
[[nodiscard]] ConfigNode read_yaml_file(const std::string& path, Problems& problems);

/// The same for a path that a user has named, which may be a FIFO: levin fit --config <(program).
[[nodiscard]] ConfigNode read_yaml_input(const std::string& path, Problems& problems);

/// The same from memory; `source_name` replaces the file name in messages.
[[nodiscard]] ConfigNode read_yaml_text(const std::string& text, const std::string& source_name, Problems& problems);

/// A value as written on a command line: a list or a map if it starts with [ or {, a string if it is quoted, else the
/// plain text itself (so "*.txt" and "a: b" need no quotes). Every mark is `mark`.
[[nodiscard]] ConfigNode read_yaml_value(const std::string& text, const Mark& mark, Problems& problems);

/// Whether `text` is allowed in a YAML file: UTF-8 without control characters; if not, a problem at `mark`.
[[nodiscard]] bool check_yaml_characters(const std::string& text, const Mark& mark, Problems& problems);

}  // namespace levin
