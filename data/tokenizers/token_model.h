// Models of tokenizer.json: they cut a word into tokens of a vocabulary.
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

constexpr int64_t kMaxToken = (1 << 22) - 1;  // an id in a file above it is a mistake
constexpr int32_t kNoToken = -1;

/// Tokens and their ids, both ways.
class Vocabulary {
 public:
  /// Reads an object of tokens and ids; notes mistakes in the node.
  static Vocabulary read(const JsonNode& node);
  /// Adds a token. If the id already has a token, the new string becomes an alias.
  void add(std::string token, int32_t id);

  [[nodiscard]] int32_t id_of(std::string_view token) const;                          // kNoToken: there is none
  [[nodiscard]] const std::string* token_of(int64_t id) const;                        // null: there is none
  [[nodiscard]] size_t size() const { return ids_.size(); }                           // tokens
  [[nodiscard]] int64_t ids() const { return static_cast<int64_t>(tokens_.size()); }  // the highest id + 1
  [[nodiscard]] const std::unordered_map<std::string_view, int32_t>& all() const { return ids_; }

 private:
  std::vector<std::unique_ptr<const std::string>> tokens_;  // by id
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<std::unique_ptr<const std::string>> others_;  // further strings of ids that already have one
};

/// Immutable; threads may share it.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of a word, which is valid UTF-8. Throws DataError if the word needs an unknown token and the
  /// file has none.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const = 0;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  [[nodiscard]] int32_t known(int32_t unknown_token, const std::string& name) const;

  Vocabulary vocabulary_;
};

/// Returns a BPE, WordPiece, Unigram or WordLevel model. Notes a mistake and returns null if the model is unsupported.
[[nodiscard]] std::unique_ptr<const TokenModel> make_token_model(const JsonNode& node);

/// Returns the token that stands for a byte of an unknown character, such as "<0x0A>".
[[nodiscard]] std::string byte_token(unsigned char byte);

}  // namespace levin::tokenizers
