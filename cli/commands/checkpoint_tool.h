// levin checkpoint inspect|verify|diff|consolidate|upgrade: works on checkpoints and other safetensors files without a
// model.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"

namespace levin {

/// Runs the arguments after "levin checkpoint", prints to the Console and returns the exit code: 0; 1 for damaged
/// files (inspect, verify, upgrade) and files that differ (diff); 2 for wrong use, and for files that diff cannot
/// compare.
[[nodiscard]] int run_checkpoint_tool(const std::vector<std::string>& arguments, int width);

/// What this command reads itself.
[[nodiscard]] OwnArguments own_checkpoint_arguments();

}  // namespace levin
