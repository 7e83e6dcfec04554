// Tables of Hugging Face's tokenizers package where it follows a different version of Unicode than utf8proc.
#pragma once

#include <cstdint>

namespace levin::tokenizers {

enum class Table : uint8_t { punctuation, format, nonspacing_mark, mark, normal_form };

/// Returns whether the character is in the category in exactly one of the package and utf8proc; for normal_form,
/// whether the package leaves it unchanged and has no combining class for it.
[[nodiscard]] bool differs_in_package(char32_t code, Table table);

inline constexpr int kAnyScript = 0;  // of spaces and characters without a script

/// Returns a number for the script of a character, as the package's pre-tokenizer UnicodeScripts knows it.
[[nodiscard]] int script_of(char32_t code);

}  // namespace levin::tokenizers
