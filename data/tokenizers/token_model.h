// Models of tokenizer.json: how a word is cut into tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

constexpr int64_t kHighestToken = (1 << 22) - 1;  // an id in a file above it is a mistake
constexpr int32_t kNoToken = -1;

/// Tokens and their ids, both ways.
class Vocabulary {
 public:
  /// An object of tokens and ids. A mistake is noted in the node.
  static Vocabulary read(const JsonNode& node);
  /// An id that has a token already keeps it: the new text is one more for it.
  void add(std::string token, int32_t id);

  [[nodiscard]] int32_t id_of(std::string_view token) const;                          // kNoToken: there is none
  [[nodiscard]] const std::string* token_of(int64_t id) const;                        // null: there is none
  [[nodiscard]] size_t size() const { return ids_.size(); }                           // tokens
  [[nodiscard]] int64_t ids() const { return static_cast<int64_t>(tokens_.size()); }  // the highest id + 1
  [[nodiscard]] const std::unordered_map<std::string_view, int32_t>& all() const { return ids_; }

 private:
  std::vector<std::unique_ptr<const std::string>> tokens_;  // by id
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<std::unique_ptr<const std::string>> others_;  // texts of ids that have one already
};

/// Immutable: any thread may use one.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of a word of valid UTF-8. Throws DataError if it needs a token for what is unknown and the file
  /// has none.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const = 0;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  [[nodiscard]] int32_t known(int32_t unknown_token, const std::string& name) const;

  Vocabulary vocabulary_;
};

/// BPE, WordPiece, Unigram or WordLevel. Null, and noted, if the model cannot be used.
[[nodiscard]] std::unique_ptr<const TokenModel> make_token_model(const JsonNode& node);
[[nodiscard]] std::unique_ptr<const TokenModel> make_bpe_model(const JsonNode& node);
[[nodiscard]] std::unique_ptr<const TokenModel> make_unigram_model(const JsonNode& node);

/// "<0x0A>", the token that stands for a byte where a character is unknown.
[[nodiscard]] std::string byte_token(unsigned char byte);

}  // namespace levin::tokenizers
