// "levin runs": a table of all runs below a folder.
#pragma once

#include <string>
#include <vector>

namespace levin {

[[nodiscard]] std::string list_runs_usage(int width);

/// Returns the exit status; `words` follow "levin runs".
int run_list_runs(const std::vector<std::string>& words, int width);

}  // namespace levin
