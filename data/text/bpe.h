// Byte-pair encoding over bytes, as GPT-2 does it (Radford et al. 2019): the text is cut into words by a pattern, and
// within a word the pair of tokens of the lowest rank is joined until no pair has one. Every byte is a token, so any
// bytes can be encoded, and decoding restores them.
//
//   const auto gpt2 = levin::BpeTokenizer::from_ranks("gpt2.tiktoken");
//   gpt2.encode("In the beginning");   // the numbers that tiktoken gives
//
// Special tokens (<|endoftext|>) can be decoded; no text encodes to them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/data/text/text_tokenizer.h"
#include "levin/data/tokenizers/bpe_merges.h"

namespace levin {

class BpeTokenizer final : public Tokenizer {
 public:
  /// A file of tiktoken: per line a token's bytes in base64 and its rank, which is its number too. Throws DataError
  /// with file:line, what was expected and what was seen.
  [[nodiscard]] static BpeTokenizer from_ranks(const std::string& path, BpePattern pattern = BpePattern::gpt2);
  /// GPT-2's two files: JSON of token to number, and pairs in the order of their ranks, one per line.
  [[nodiscard]] static BpeTokenizer from_merges(const std::string& vocab_path, const std::string& merges_path);

  [[nodiscard]] int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const override;

 private:
  using Ids = std::unordered_map<std::string, int32_t>;

  BpeTokenizer() = default;
  void take_tokens(const Ids& ids, const std::string& path);

  std::vector<std::string> texts_;  // by token; "": no token has this number
  std::array<int32_t, 256> bytes_ = {};
  tokenizers::BpeMerges merges_;
  BpePattern pattern_ = BpePattern::gpt2;
};

namespace detail {
/// Returns the first word of non-empty text: see bpe_words.h.
[[nodiscard]] std::string_view first_word(std::string_view text, BpePattern pattern);
}  // namespace detail

}  // namespace levin
