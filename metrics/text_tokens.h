// Splits text into words and characters, as Python and torchmetrics do. Internal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levin::metrics {

/// The parts between white space, including Unicode's, as Python's str.split() gives. They point into `text`.
[[nodiscard]] std::vector<std::string_view> split_at_spaces(std::string_view text);

/// Runs of a-z and 0-9 in lower case; every other character separates.
[[nodiscard]] std::vector<std::string> alphanumeric_words(std::string_view text);

/// The code points of UTF-8; a byte that is not UTF-8 becomes U+DC80 + (byte - 0x80), as Python's "surrogateescape".
[[nodiscard]] std::u32string code_points(std::string_view text);

}  // namespace levin::metrics
