#pragma once

#include <memory>
#include <string>

#include "levin/data/text/text_tokenizer.h"

namespace levin {

/// `name`: "byte"; a file of ranks (.tiktoken); Hugging Face's tokenizer.json or a folder with it; or a folder with
/// vocab.json and merges.txt alone, as GPT-2's, which may be called encoder.json and vocab.bpe. `pattern` belongs to a
/// file of ranks. Throws DataError naming file and line.
[[nodiscard]] std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name,
                                                              BpePattern pattern = BpePattern::gpt2);

}  // namespace levin
