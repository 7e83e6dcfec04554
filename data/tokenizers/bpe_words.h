// Splits text into words as GPT-2's and GPT-4's byte-pair encodings do. The two patterns are written out as loops
// because most language models use one of them: on 4.4 MB of English prose the loops below are several times as fast
// as a regular expression.
#pragma once

#include <string_view>

namespace levin::tokenizers {

/// Returns the first word of `text`, which is not empty. A byte that is not UTF-8 counts as a character that is not a
/// letter, number or space. The pattern:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
[[nodiscard]] std::string_view first_gpt2_word(std::string_view text);

/// Same as above, for the pattern that tiktoken calls cl100k:
///   '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|
///   \s++$|\s*[\r\n]|\s+(?!\S)|\s
[[nodiscard]] std::string_view first_cl100k_word(std::string_view text);

}  // namespace levin::tokenizers
