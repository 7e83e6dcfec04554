#pragma once

namespace levin {

/// Returns the version of the library: "0.2.0".
[[nodiscard]] const char* version();

}  // namespace levin
