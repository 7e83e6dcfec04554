#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace levin::tokenizers {

/// nullopt: it is not base64 (RFC 4648, with padding).
[[nodiscard]] std::optional<std::string> from_base64(std::string_view code);

}  // namespace levin::tokenizers
