// Text of files, which nobody has checked, in a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace levin {

/// For the text of an element and for a quoted attribute. Control characters and directional marks are shown as
/// escapes, what is not UTF-8 too.
[[nodiscard]] std::string html_text(std::string_view text);

/// The same, in one element that may be broken anywhere a name is long.
[[nodiscard]] std::string html_code(std::string_view text);

/// A JSON string with its quotes that may stand in a <script>: it holds no "<", "&" or line separator.
[[nodiscard]] std::string script_string(std::string_view text);

/// A JSON number; null for nan and infinities.
[[nodiscard]] std::string script_number(double value);

/// "1234567" as "1,234,567".
[[nodiscard]] std::string grouped_number(int64_t value);

}  // namespace levin
