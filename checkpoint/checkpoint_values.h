// The values of a checkpoint of either kind. Needs no LibTorch header, unlike what reads its tensors.
#pragma once

#include <string>

#include "levin/core/options/config_node.h"

namespace levin {

/// Reads the values of a checkpoint, a file or a folder of shards, as read_checkpoint_values does for a file.
[[nodiscard]] ConfigNode load_checkpoint_values(const std::string& path);

}  // namespace levin
