// Tokens that are found in the text before it is cut into words: <s>, [MASK], <|im_start|>, and tokens that users add.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "levin/data/tokenizers/normalizer.h"
#include "levin/data/tokenizers/token_model.h"
#include "levin/data/tokenizers/token_trie.h"

namespace levin::tokenizers {

struct AddedToken {
  std::string content;
  std::string text = "";  // in a decoded text: `content`, normalized if it is found so
  int32_t id = kNoToken;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the spaces on its left with it
  bool rstrip = false;
  bool normalized = false;  // found in the text after it is normalized, as what normalizing makes of `content`
  bool special = false;     // omitted when decoding
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Reads an array; the node may be absent. Notes mistakes in the node. Throws DataError if normalizing them needs
  /// more than `budget`.
  AddedTokens(const JsonNode& node, const TokenModel& model, const Normalizer* normalizer, Budget& budget);
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;

  struct Part {
    size_t begin, end;
    int32_t id;  // kNoToken: text between tokens
  };
  /// Returns the parts of the text, without gaps. `normalized`: looks for tokens that are matched after normalization.
  [[nodiscard]] std::vector<Part> find(std::string_view text, bool normalized, Budget& budget) const;

  [[nodiscard]] int32_t id_of(const std::string& content) const;
  [[nodiscard]] const AddedToken* token_of(int64_t id) const;
  [[nodiscard]] bool is_special(const std::string& content) const { return specials_.contains(content); }
  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  [[nodiscard]] bool fits(const AddedToken& token, std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int64_t, size_t> by_id_;
  std::unordered_set<std::string> specials_;
  std::vector<std::string> patterns_;  // what the tries find
  TokenTrie raw_, normalized_;         // numbers: places in tokens_
};

}  // namespace levin::tokenizers
