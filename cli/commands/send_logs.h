// "levin runs send": sends what runs could not send to their servers.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Returns the exit status: kExitPartly if something is left. `words` follow "levin runs send".
int run_send_logs(const std::vector<std::string>& words, int width);

}  // namespace levin
