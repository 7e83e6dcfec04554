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
  struct Merge {
    int32_t rank;
    int32_t token;  // what the pair becomes
  };
  using Ids = std::unordered_map<std::string, int32_t>;

  BpeTokenizer() = default;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void take_tokens(const Ids& ids, const std::string& path);
  void encode_word(std::string_view word, std::vector<int32_t>& tokens) const;

  std::vector<std::string> texts_;  // by token; "": no token has this number
  std::array<int32_t, 256> bytes_ = {};
  std::unordered_map<uint64_t, Merge> merges_;
  BpePattern pattern_ = BpePattern::gpt2;
};

namespace detail {
/// The first word of a text that is not empty, as a pattern cuts it:
///   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   cl100k  '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|
///           \s++$|\s*[\r\n]|\s+(?!\S)|\s
/// A byte that is not UTF-8 counts as a character that is not a letter, number or space.
[[nodiscard]] std::string_view first_word(std::string_view text, BpePattern pattern);
}  // namespace detail

}  // namespace levin
