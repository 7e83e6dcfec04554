// Merges configuration files and command-line overrides into one tree, from left to right.
//
//   ConfigNode config = assemble_config(arguments.sources, problems);
//
// Maps merge key by key; lists and scalars replace. A class spec ({class_path, init_args}) that changes its class
// loses its old init_args; one of the same class keeps and merges them.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/value.h"

namespace levin {

/// "--trainer.callbacks.0.init_args.patience=3", parsed; `append` for "+=".
struct Override {
  std::string path = "";   // "trainer.callbacks.0.init_args.patience"; an index may also be written [0]
  std::string value = "";  // as typed: see read_yaml_value
  bool append = false;

  /// The override in messages.
  [[nodiscard]] std::string str() const;
};

/// A run file on the command line.
struct ConfigFile {
  std::string path = "";
};

/// The text of a run file that a program has in memory.
struct ConfigText {
  std::string text = "";
  std::string name = "";  // in messages, instead of a path
};

/// A file or an override on the command line; their order matters.
using ConfigSource = std::variant<ConfigFile, ConfigText, Override>;

/// Merges `upper` into `lower`.
void merge_config(ConfigNode& lower, const ConfigNode& upper);

/// Sets one value in `config`; a path that does not fit the tree becomes a problem and changes nothing.
void apply_override(ConfigNode& config, const Override& change, Problems& problems);

/// Reads all files and applies all overrides in order.
[[nodiscard]] ConfigNode assemble_config(const std::vector<ConfigSource>& sources, Problems& problems);

}  // namespace levin
