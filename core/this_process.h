// What this process was started as, and where it runs.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// The program and its arguments; empty without /proc.
[[nodiscard]] std::vector<std::string> own_command_line();

/// The same with spaces between.
[[nodiscard]] std::string own_command_text();

/// The name of this machine; "" if it has none.
[[nodiscard]] std::string host_name();

}  // namespace levin
