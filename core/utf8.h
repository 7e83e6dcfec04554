// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace levin {

/// Bytes of the character at `at`; 0 if it is none (overlong, a surrogate, above U+10FFFF or cut off).
[[nodiscard]] size_t utf8_length(std::string_view text, size_t at);

/// The escape ("\x1b", "\u202e") of the character at `at` if a terminal would obey it or hide text with it: controls
/// (C0, DEL, C1), separators of lines, marks of direction and order, the byte order mark; and of a byte that is no
/// UTF-8. "" for all others.
[[nodiscard]] std::string terminal_escape(std::string_view text, size_t at);

/// Whether any character of `text` has such an escape: no name of a column, file or job holds one.
[[nodiscard]] bool has_control_character(std::string_view text);

/// `text` as it may be printed: escapes as above; ends of lines and tabs stay.
[[nodiscard]] std::string printable_text(std::string_view text);

}  // namespace levin
