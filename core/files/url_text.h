// Text as a part of a URL, and back.
#pragma once

#include <string>

namespace levin {

/// Returns `text` as a part of a URL: all characters but letters, digits, -._~ and those in `keep` become %XX.
[[nodiscard]] std::string url_encoded(const std::string& text, const std::string& keep = "");

/// Returns the inverse of url_encoded().
[[nodiscard]] std::string url_decoded(const std::string& text);

}  // namespace levin
