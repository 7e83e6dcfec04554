// Environment variables, handed to what reads them, so that a test can hand over others.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace levin {

/// Gives an environment variable's value; unset if there is none.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process; an empty one counts as unset.
[[nodiscard]] Variables process_variables();

}  // namespace levin
