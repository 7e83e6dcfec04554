#include "levin/data/text_tokenizer.h"

#include <filesystem>

#include "levin/core/error.h"
#include "levin/data/bpe.h"

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

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, BpePattern pattern) {
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (name.ends_with(".tiktoken")) return std::make_shared<BpeTokenizer>(BpeTokenizer::from_ranks(name, pattern));
  for (const auto& [vocab, merges] : {std::pair{"vocab.json", "merges.txt"}, std::pair{"encoder.json", "vocab.bpe"}}) {
    const std::filesystem::path folder(name);
    std::error_code ignored;
    if (!std::filesystem::exists(folder / vocab, ignored)) continue;
    return std::make_shared<BpeTokenizer>(
        BpeTokenizer::from_merges((folder / vocab).string(), (folder / merges).string()));
  }
  throw DataError("tokenizer: expected \"byte\", a file that ends in .tiktoken, or a folder with vocab.json and " +
                  std::string("merges.txt; saw \"") + name + "\".");
}

}  // namespace levin
