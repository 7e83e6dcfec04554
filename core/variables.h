// Environment variables, passed as a function, so that tests can pass others.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace levin {

/// Returns an environment variable's value; unset if there is none.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process; an empty one counts as unset.
[[nodiscard]] Variables process_variables();

}  // namespace levin
