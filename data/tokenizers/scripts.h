// The script of a character: Latin, Cyrillic, Han, ….
#pragma once

namespace levin::tokenizers {

inline constexpr int kAnyScript = 0;  // of a space, and of what belongs to no script

/// A number for each script, as the pre-tokenizer UnicodeScripts of the package tokenizers knows them.
[[nodiscard]] int script_of(char32_t code);

}  // namespace levin::tokenizers
