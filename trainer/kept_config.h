// What Trainer::keep_config takes.
#pragma once

#include <functional>
#include <string>

#include "levin/core/config_node.h"

namespace levin {

/// The configuration of a program that has one, and how it reads the file that an earlier run has kept: with today's
/// names and every default filled in.
struct KeptConfig {
  ConfigNode config = {};
  std::function<ConfigNode(const std::string& path)> read = {};
};

}  // namespace levin
