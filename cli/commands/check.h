// "levin check": finds the mistakes of a run file without training.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Runs the arguments after "levin check"; returns the exit code: kExitOk, or kExitBadConfig if something is wrong.
int run_check(const std::vector<std::string>& arguments, int width);

}  // namespace levin
