// "levin report": one HTML page about one run, or a comparison of several.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"

namespace levin {

/// Returns the exit status; `arguments` follow "levin report".
int run_make_report(const std::vector<std::string>& arguments, int width);

/// The options that this command reads itself.
[[nodiscard]] std::vector<OwnOption> own_make_report_options();

}  // namespace levin
