// GPT-2 writes a byte as a character that can be seen: itself if it is printable in Latin-1, else one from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace levin::tokenizers {

/// Each byte as its character.
void append_byte_characters(std::string& text, std::string_view bytes);
/// The bytes that `text` stands for; nullopt: a character stands for none.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace levin::tokenizers
