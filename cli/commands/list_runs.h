// "levin runs": a table of all runs below a folder.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"

namespace levin {

/// Returns the exit status; `arguments` follow "levin runs". After "send" it sends what runs could not send to their
/// servers.
int run_list_runs(const std::vector<std::string>& arguments, int width);

/// The options that this command reads itself.
[[nodiscard]] std::vector<OwnOption> own_list_runs_options();

}  // namespace levin
