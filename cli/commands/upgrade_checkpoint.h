// levin checkpoint upgrade: rewrites checkpoints of earlier versions with the present names.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/config_node.h"

namespace levin {

/// Where upgraded checkpoints go: to `output`; in place of the old ones; or, by default, next to them as
/// NAME-upgraded.ckpt.
struct UpgradeTarget {
  std::string output = "";
  bool in_place = false;
};

/// Gives the values of a checkpoint the present names: of classes whose old names are aliases, and of the version.
/// Returns a line for each change; none if the values are the present version's. Throws CheckpointError for values of a
/// newer version.
[[nodiscard]] std::vector<std::string> upgrade_values(ConfigNode& values);

/// Upgrades a checkpoint, or all checkpoints in a folder and below it, and prints a line for each. A file is written
/// under a temporary name, read again and compared before it gets its name. Returns false if one could not be upgraded;
/// the others are. Throws CheckpointError for a single checkpoint, and for an output that exists.
[[nodiscard]] bool upgrade_checkpoints(const std::string& path, const UpgradeTarget& target);

}  // namespace levin
