// Byte-pair encoding (Sennrich et al. 2016) as Hugging Face's tokenizers do it: a word's characters are tokens first;
// then the pair that comes first among the merges is joined, the leftmost of them, until no pair is left.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>

#include "levin/core/error.h"
#include "levin/data/tokenizers/token_model.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

struct BpeMerge {
  int32_t rank;
  int32_t token;  // what the pair becomes
};

// A word's tokens while they are joined: a linked list, so that joining two does not move the others.
struct Symbol {
  int32_t token;  // -1: joined to the one before
  int32_t before;
  int32_t after;  // -1: none
};

struct MergeCandidate {
  int32_t rank, place, left, right, joined;
  // For a queue whose top is the lowest rank, and of those the leftmost.
  bool operator<(const MergeCandidate& other) const {
    return rank != other.rank ? rank > other.rank : place > other.place;
  }
};

class BpeModel final : public TokenModel {
 public:
  explicit BpeModel(const JsonNode& node)
      : TokenModel(Vocabulary::read(node.at("vocab"))),
        unknown_name_(node.text("unk_token", "")),
        prefix_(node.text("continuing_subword_prefix", "")),
        suffix_(node.text("end_of_word_suffix", "")),
        fuses_unknown_(node.flag("fuse_unk", false)),
        ignores_merges_(node.flag("ignore_merges", false)) {
    unknown_ = unknown_name_.empty() ? kNoToken : vocabulary_.id_of(unknown_name_);
    const JsonNode dropout = node.at("dropout");
    if (!dropout.is_null() && !(dropout.value().is_number() && dropout.value().get<double>() == 0)) {
      dropout.refuse("only 0 or null is supported, because a text would have other tokens each time.");
    }
    bytes_.fill(kNoToken);
    if (node.flag("byte_fallback", false)) {
      for (size_t byte = 0; byte < 256; ++byte) {
        bytes_[byte] = vocabulary_.id_of(byte_token(static_cast<unsigned char>(byte)));
      }
    }
    read_merges(node.at("merges"));
  }

  void encode(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const override {
    const int32_t whole = ignores_merges_ ? vocabulary_.id_of(word) : kNoToken;
    if (whole != kNoToken) {
      ids.push_back(whole);
      return;
    }
    std::vector<Symbol> symbols;
    append_characters(word, symbols, budget);
    join(symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.token >= 0) ids.push_back(symbol.token);
    }
  }

 private:
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  void read_merges(const JsonNode& node) {
    const std::vector<JsonNode> all = node.elements();
    merges_.reserve(all.size());
    int32_t rank = 0;
    for (const JsonNode& merge : all) read_merge(merge, rank++);
  }

  // "a b" or ["a", "b"].
  void read_merge(const JsonNode& node, int32_t rank) {
    std::string left, right;
    const nlohmann::json& value = node.value();
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
      left = value[0].get<std::string>();
      right = value[1].get<std::string>();
    } else if (value.is_string()) {
      const auto text = value.get<std::string>();
      const size_t blank = text.find(' ');
      if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos) {
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
      }
    }
    if (left.empty() || right.empty()) {
      node.refuse_value("two tokens with a space between them, or an array of two tokens");
      return;
    }
    const std::string joined = left + (right.size() >= prefix_.size() ? right.substr(prefix_.size()) : "");
    for (const std::string& token : {left, right, joined}) {
      if (vocabulary_.id_of(token) != kNoToken) continue;
      node.refuse("the token " + cut_text(token) + " is not in model.vocab.");
      return;
    }
    merges_[pair_of(vocabulary_.id_of(left), vocabulary_.id_of(right))] = {rank, vocabulary_.id_of(joined)};
  }

  void append_characters(std::string_view word, std::vector<Symbol>& symbols, Budget& budget) const {
    symbols.reserve(word.size());
    const auto add = [&](int32_t token) {
      const auto place = static_cast<int32_t>(symbols.size());
      symbols.push_back({token, place - 1, place + 1});
    };
    bool unknown_waits = false;
    std::string with_affixes;
    for (size_t i = 0; i < word.size();) {
      const size_t size = size_of_character(word[i]);
      std::string_view character = word.substr(i, size);
      const bool is_last = i + size == word.size();
      if ((i > 0 && !prefix_.empty()) || (is_last && !suffix_.empty())) {
        with_affixes = (i > 0 ? prefix_ : "") + std::string(character) + (is_last ? suffix_ : "");
        character = with_affixes;
        budget.spend(character.size());
      }
      i += size;
      const int32_t id = vocabulary_.id_of(character);
      if (id != kNoToken) {
        if (unknown_waits) add(unknown_);
        unknown_waits = false;
        add(id);
      } else if (has_bytes(character)) {
        budget.check_tokens(symbols.size() + character.size());
        for (const char byte : character) add(bytes_[static_cast<unsigned char>(byte)]);
      } else if (!unknown_name_.empty()) {
        if (unknown_waits && !fuses_unknown_) add(unknown_);
        (void)known(unknown_, unknown_name_);  // or the error
        unknown_waits = true;
      }
    }
    if (unknown_waits) add(unknown_);
    if (!symbols.empty()) symbols.back().after = -1;
  }

  [[nodiscard]] bool has_bytes(std::string_view character) const {
    return std::all_of(character.begin(), character.end(),
                       [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != kNoToken; });
  }

  void join(std::vector<Symbol>& symbols) const {
    std::priority_queue<MergeCandidate> queue;
    const auto consider = [&](int32_t place) {
      if (place < 0 || symbols[static_cast<size_t>(place)].after < 0) return;
      const Symbol& left = symbols[static_cast<size_t>(place)];
      const int32_t right = symbols[static_cast<size_t>(left.after)].token;
      const auto found = merges_.find(pair_of(left.token, right));
      if (found != merges_.end()) queue.push({found->second.rank, place, left.token, right, found->second.token});
    };
    for (size_t i = 0; i < symbols.size(); ++i) consider(static_cast<int32_t>(i));
    while (!queue.empty()) {
      const MergeCandidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<size_t>(best.place)];
      if (left.token != best.left || left.after < 0) continue;  // joined to another meanwhile
      Symbol& right = symbols[static_cast<size_t>(left.after)];
      if (right.token != best.right) continue;
      left.token = best.joined;
      right.token = -1;
      left.after = right.after;
      if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = best.place;
      consider(left.before);
      consider(best.place);
    }
  }

  std::string unknown_name_, prefix_, suffix_;
  bool fuses_unknown_, ignores_merges_;
  int32_t unknown_ = kNoToken;
  std::array<int32_t, 256> bytes_{};  // tokens of byte_fallback
  std::unordered_map<uint64_t, BpeMerge> merges_;
};

}  // namespace

std::unique_ptr<const TokenModel> make_bpe_model(const JsonNode& node) {
  return std::make_unique<BpeModel>(node);
}

}  // namespace levin::tokenizers
