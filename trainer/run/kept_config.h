// The configuration that a run stores.
#pragma once

#include <functional>
#include <string>

#include "levin/core/options/config_node.h"

namespace levin {

/// The configuration of a program, and how to read the file stored by an earlier run: with current names, and all
/// defaults filled in.
struct KeptConfig {
  ConfigNode config = {};
  std::function<ConfigNode(const std::string& path)> read = {};
};

}  // namespace levin
