#pragma once

namespace levin {

/// Of the library: "0.1.0".
[[nodiscard]] const char* version();

}  // namespace levin
