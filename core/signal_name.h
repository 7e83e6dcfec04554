// What messages call a signal that ends a run.
#pragma once

#include <string>

namespace levin {

/// "Ctrl-C", "SIGTERM", …
[[nodiscard]] std::string stop_signal_name(int signal_number);

}  // namespace levin
