// Bytes written as text: base64 (RFC 4648), and GPT-2's way, which writes a byte as a visible character: itself if it
// is printable in Latin-1, else one from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace levin::tokenizers {

/// Appends the character of each byte.
void append_byte_characters(std::string& text, std::string_view bytes);
/// Returns the bytes that `text` stands for; nullopt if a character does not stand for a byte.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view text);

/// Returns the decoded bytes; nullopt if `code` is not base64 with padding.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view code);

}  // namespace levin::tokenizers
