// "levin runs": a table of all runs below a folder.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Returns the exit status; `arguments` follow "levin runs". After "send" it sends what runs could not send to their
/// servers.
int run_list_runs(const std::vector<std::string>& arguments, int width);

}  // namespace levin
