// "levin report": one HTML page about one run, or a comparison of several.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Returns the exit status; `arguments` follow "levin report".
int run_make_report(const std::vector<std::string>& arguments, int width);

}  // namespace levin
