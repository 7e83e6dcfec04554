// levin sweep: trains a run with many values of its options, and finds the best.
//
//   levin sweep sweep.yaml
//   levin sweep status|best|report FOLDER
//   levin sweep ask|tell|wait FOLDER
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"

namespace levin {

/// Runs the arguments after "levin sweep". Prints to the Console and returns the exit code: 0; 1 if the sweep or a
/// trial failed; 2 for a mistake in arguments or files; 128 + N after signal N.
[[nodiscard]] int run_sweep_tool(const std::vector<std::string>& arguments, int width);

/// What this command reads itself.
[[nodiscard]] OwnArguments own_sweep_arguments();

}  // namespace levin
