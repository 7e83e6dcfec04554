// "levin new": writes a project that builds and trains at once.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Runs the arguments after "levin new"; returns the exit code.
int run_new_project(const std::vector<std::string>& arguments, int width);

}  // namespace levin
