// levin sweep: trains a run with many values of its options, and finds the best.
//
//   levin sweep sweep.yaml
//   levin sweep status|best|report FOLDER
//   levin sweep ask|tell|wait FOLDER
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Prints to the Console and returns the exit code: 0; 1 if the sweep or a trial failed; 2 for a mistake in words or
/// files; 130 and so on after a signal.
[[nodiscard]] int run_sweep_tool(const std::vector<std::string>& words, int width);

[[nodiscard]] std::string sweep_usage(int width);

}  // namespace levin
