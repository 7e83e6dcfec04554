#include "levin/data/tokenizers/token_model.h"

#include <nlohmann/json.hpp>

#include "levin/core/error.h"
#include "levin/data/tokenizers/token_trie.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

void Vocabulary::add(std::string token, int32_t id) {
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
  auto owned = std::make_unique<const std::string>(std::move(token));
  ids_.insert_or_assign(std::string_view(*owned), id);  // a key that was there stays, and with it its text
  auto& place = tokens_[static_cast<size_t>(id)];
  if (place == nullptr) {
    place = std::move(owned);
  } else {
    others_.push_back(std::move(owned));
  }
}

int32_t Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? kNoToken : found->second;
}

const std::string* Vocabulary::token_of(int64_t id) const {
  return id < 0 || id >= ids() ? nullptr : tokens_[static_cast<size_t>(id)].get();
}

Vocabulary Vocabulary::read(const JsonNode& node) {
  Vocabulary vocabulary;
  if (!node.is_object() || node.value().empty()) {
    node.refuse_value("an object of tokens and their ids");
    return vocabulary;
  }
  vocabulary.ids_.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kHighestToken)) {
      node.refuse("token " + cut_text(token) + ": expected an id from 0 to " + std::to_string(kHighestToken) +
                  ", saw " + cut_text(id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) + ".");
      continue;
    }
    const std::string* const other = vocabulary.token_of(id.get<int64_t>());
    if (other != nullptr) {
      node.refuse("two tokens have the id " + id.dump() + ": " + cut_text(*other) + " and " + cut_text(token) + ".");
      continue;
    }
    vocabulary.add(token, id.get<int32_t>());
  }
  return vocabulary;
}

int32_t TokenModel::known(int32_t unknown_token, const std::string& name) const {
  if (unknown_token != kNoToken) return unknown_token;
  throw DataError("tokenizer.json: the text holds what no token stands for, and the token for that, " +
                  (name.empty() ? "unk_id" : "unk_token " + cut_text(name)) + ", is not in model.vocab.");
}

std::string byte_token(unsigned char byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

namespace {

class WordLevelModel final : public TokenModel {
 public:
  explicit WordLevelModel(const JsonNode& node)
      : TokenModel(Vocabulary::read(node.at("vocab"))),
        unknown_name_(node.text("unk_token")),
        unknown_(vocabulary_.id_of(unknown_name_)) {}

  void encode(std::string_view word, std::vector<int32_t>& ids, Budget&) const override {
    const int32_t id = vocabulary_.id_of(word);
    ids.push_back(id == kNoToken ? known(unknown_, unknown_name_) : id);
  }

 private:
  std::string unknown_name_;
  int32_t unknown_;
};

// Wu et al. 2016: the longest token that the rest of the word begins with, again and again; a word that cannot be cut
// in this way is unknown as a whole.
class WordPieceModel final : public TokenModel {
 public:
  explicit WordPieceModel(const JsonNode& node)
      : TokenModel(Vocabulary::read(node.at("vocab"))),
        unknown_name_(node.text("unk_token", "[UNK]")),
        unknown_(vocabulary_.id_of(unknown_name_)),
        most_characters_(static_cast<size_t>(node.count("max_input_chars_per_word", 1 << 20, 100))) {
    const std::string prefix = node.text("continuing_subword_prefix", "##");
    std::vector<std::pair<std::string_view, int32_t>> first, later;
    for (const auto& [token, id] : vocabulary_.all()) {
      first.emplace_back(token, id);
      if (token.starts_with(prefix)) later.emplace_back(token.substr(prefix.size()), id);
    }
    first_ = TokenTrie(std::move(first));
    later_ = TokenTrie(std::move(later));
  }

  void encode(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const override {
    const size_t before = ids.size();
    bool is_known = count_characters(word) <= most_characters_;
    for (size_t begin = 0; is_known && begin < word.size();) {
      size_t longest = 0;
      int32_t found = kNoToken;
      budget.spend((begin == 0 ? first_ : later_).for_each_prefix(word, begin, [&](size_t size, int32_t id) {
        longest = size;
        found = id;
      }));
      is_known = found != kNoToken;
      ids.push_back(found);
      begin += longest;
    }
    if (is_known) return;
    ids.resize(before);
    ids.push_back(known(unknown_, unknown_name_));
  }

 private:
  std::string unknown_name_;
  int32_t unknown_;
  size_t most_characters_;
  TokenTrie first_, later_;  // tokens at the beginning of a word, and without their prefix those within one
};

// Files of the package's early versions have no type.
std::string type_of_model(const JsonNode& node) {
  if (!node.at("type").is_null()) return node.text("type");
  if (!node.at("merges").is_null()) return "BPE";
  if (node.at("vocab").value().is_array()) return "Unigram";
  return node.at("max_input_chars_per_word").is_null() ? "WordLevel" : "WordPiece";
}

}  // namespace

std::unique_ptr<const TokenModel> make_token_model(const JsonNode& node) {
  if (!node.is_object()) {
    node.refuse_value("an object with the model's type and vocab");
    return nullptr;
  }
  const std::string type = type_of_model(node);
  if (type == "BPE") return make_bpe_model(node);
  if (type == "Unigram") return make_unigram_model(node);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(node);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(node);
  node.at("type").refuse("the model " + cut_text(type) +
                         " is not supported. Known: BPE, WordPiece, Unigram, WordLevel.");
  return nullptr;
}

}  // namespace levin::tokenizers
