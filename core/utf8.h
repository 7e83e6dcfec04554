// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace levin {

/// Bytes of the character at `at`; 0 if it is none (overlong, a surrogate, above U+10FFFF or cut off).
[[nodiscard]] size_t utf8_length(std::string_view text, size_t at);

/// Whether there is a character that moves the cursor, ends a line or does nothing that can be seen: C0, DEL, C1 and
/// Unicode's line and paragraph separators.
[[nodiscard]] bool has_control_character(std::string_view text);

}  // namespace levin
