#include "levin/data/text/make_tokenizer.h"

#include <filesystem>

#include "levin/core/options/error.h"
#include "levin/data/text/bpe.h"
#include "levin/data/text/huggingface_tokenizer.h"

namespace levin {

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name, BpePattern pattern) {
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (name.ends_with(".tiktoken")) return std::make_shared<BpeTokenizer>(BpeTokenizer::from_ranks(name, pattern));
  if (detail::names_huggingface_tokenizer(name)) return std::make_shared<HuggingFaceTokenizer>(name);
  for (const auto& [vocab, merges] : {std::pair{"vocab.json", "merges.txt"}, std::pair{"encoder.json", "vocab.bpe"}}) {
    const std::filesystem::path folder(name);
    std::error_code ignored;
    if (!std::filesystem::exists(folder / vocab, ignored)) continue;
    return std::make_shared<BpeTokenizer>(
        BpeTokenizer::from_merges((folder / vocab).string(), (folder / merges).string()));
  }
  throw DataError("tokenizer: expected \"byte\", a file that ends in .tiktoken, a tokenizer.json, or a folder with " +
                  std::string("tokenizer.json or with vocab.json and merges.txt; saw \"") + name + "\".");
}

}  // namespace levin
