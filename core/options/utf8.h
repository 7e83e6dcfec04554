// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace levin {

/// Bytes of the character at `at`; 0 if it is invalid (overlong, a surrogate, above U+10FFFF or cut off).
[[nodiscard]] size_t utf8_length(std::string_view text, size_t at);

/// The escape ("\x1b", "\u202e") of the character at `at` if it would control a terminal or hide text: control
/// characters (C0, DEL, C1), line separators, directional marks, the byte order mark; and of a byte that is not UTF-8.
/// "" for all others.
[[nodiscard]] std::string terminal_escape(std::string_view text, size_t at);

/// Whether any character of `text` has such an escape: names of columns, files and jobs must not contain one.
[[nodiscard]] bool has_control_character(std::string_view text);

/// `text` made safe to print: escapes as above; newlines and tabs are kept.
[[nodiscard]] std::string printable_text(std::string_view text);

}  // namespace levin
