// "levin report": one HTML page about one run, or several beside each other.
#pragma once

#include <string>
#include <vector>

namespace levin {

[[nodiscard]] std::string make_report_usage(int width);

/// Returns the exit status; `words` follow "levin report".
int run_make_report(const std::vector<std::string>& words, int width);

}  // namespace levin
