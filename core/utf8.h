// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace levin {

/// Bytes of the character at `at`; 0 if it is none (overlong, a surrogate, above U+10FFFF or cut off).
[[nodiscard]] size_t utf8_length(std::string_view text, size_t at);

}  // namespace levin
