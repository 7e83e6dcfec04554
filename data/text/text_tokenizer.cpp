#include "levin/data/text/text_tokenizer.h"

#include "levin/core/options/error.h"

namespace levin {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens(text.size());
  for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<uint8_t>(text[i]);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text(tokens.size(), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] > 255) {
      throw DataError("ByteTokenizer: token " + std::to_string(i) + ": expected 0 to 255, saw " +
                      std::to_string(tokens[i]) + ".");
    }
    text[i] = static_cast<char>(tokens[i]);
  }
  return text;
}

}  // namespace levin
