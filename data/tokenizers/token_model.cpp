#include "levin/data/tokenizers/token_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/bpe_merges.h"
#include "levin/data/tokenizers/token_trie.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

// Byte-pair encoding (Sennrich et al. 2016) as Hugging Face's tokenizers do it: a word's characters are tokens first;
// then the pair that comes first among the merges is joined, the leftmost of them, until no pair is left.

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
      dropout.refuse("only 0 or null is supported, because dropout gives different tokens each time.");
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
    const size_t first = ids.size();
    append_characters(word, ids, budget);
    merges_.join(ids, first);
  }

 private:
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
    merges_.set(vocabulary_.id_of(left), vocabulary_.id_of(right), rank, vocabulary_.id_of(joined));
  }

  void append_characters(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const {
    const size_t first = ids.size();
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
        if (unknown_waits) ids.push_back(unknown_);
        unknown_waits = false;
        ids.push_back(id);
      } else if (has_bytes(character)) {
        budget.check_tokens(ids.size() - first + character.size());
        for (const char byte : character) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
      } else if (!unknown_name_.empty()) {
        if (unknown_waits && !fuses_unknown_) ids.push_back(unknown_);
        (void)known(unknown_, unknown_name_);  // or the error
        unknown_waits = true;
      }
    }
    if (unknown_waits) ids.push_back(unknown_);
  }

  [[nodiscard]] bool has_bytes(std::string_view character) const {
    return std::all_of(character.begin(), character.end(),
                       [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != kNoToken; });
  }

  std::string unknown_name_, prefix_, suffix_;
  bool fuses_unknown_, ignores_merges_;
  int32_t unknown_ = kNoToken;
  std::array<int32_t, 256> bytes_{};  // tokens of byte_fallback
  BpeMerges merges_;
};

// The unigram language model of Kudo 2018 (https://aclanthology.org/P18-1007): of all ways to cut text into tokens,
// the one whose scores, which are log-probabilities, have the greatest sum (Viterbi).

constexpr double kUnknownPenalty = 10;  // sentencepiece's: an unknown character scores this less than the worst token

// A score as the package's JSON reader (serde_json without float_roundtrip) takes it: the digits as a whole number,
// times or divided by a power of ten. Its last bit may differ from the nearest number's, and that decides between two
// ways of cutting that are equally good.
double as_package_reads(double score) {
  std::array<char, 32> text{};  // "1.2345e-06": the fewest digits that are this number, as files have them
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), std::abs(score), std::chars_format::scientific);
  const char* const e = std::find(static_cast<const char*>(text.data()), static_cast<const char*>(written.ptr), 'e');
  uint64_t digits = 0;
  for (const char* at = text.data(); at != e; ++at) {
    if (*at != '.') digits = digits * 10 + static_cast<uint64_t>(*at - '0');  // at most 17
  }
  const auto after_point = std::max<std::ptrdiff_t>(e - text.data() - 2, 0);
  const int64_t exponent = std::strtol(e + 1, nullptr, 10) - after_point;
  const double power = std::strtod(("1e" + std::to_string(std::abs(exponent))).c_str(), nullptr);
  const auto number = static_cast<double>(digits);
  const bool has_power = std::abs(exponent) <= 308;
  const double read = !has_power ? std::abs(score) : exponent >= 0 ? number * power : number / power;
  return std::copysign(read, score);
}

struct UnigramPieces {
  Vocabulary vocabulary;
  std::vector<double> scores;  // by id
};

// [["<unk>", 0.0], ["▁the", -3.2], …]: the id is the place. Of two equal tokens the last counts.
UnigramPieces read_pieces(const JsonNode& node) {
  UnigramPieces pieces;
  const std::vector<JsonNode> all = node.elements();
  if (all.size() > static_cast<size_t>(kMaxToken)) {
    node.refuse("expected at most " + std::to_string(kMaxToken) + " tokens, saw " + std::to_string(all.size()) + ".");
    return pieces;
  }
  for (const JsonNode& one : all) {
    const nlohmann::json& value = one.value();
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_number()) {
      one.refuse_value("a token and its score");
      continue;
    }
    pieces.vocabulary.add(value[0].get<std::string>(), static_cast<int32_t>(pieces.scores.size()));
    pieces.scores.push_back(as_package_reads(value[1].get<double>()));
  }
  return pieces;
}

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(const JsonNode& node) : UnigramModel(node, read_pieces(node.at("vocab"))) {}

  void encode(std::string_view word, std::vector<int32_t>& ids, Budget& budget) const override {
    std::vector<Arrival> arrivals(word.size() + 1);
    find_best(word, arrivals, budget);
    // From the end to the begin; unknown characters side by side are one.
    const size_t first = ids.size();
    for (size_t end = word.size(); end > 0;) {
      size_t begin = arrivals[end].begin;
      const bool is_unknown = unknown_ != kNoToken && arrivals[end].id == unknown_;
      while (is_unknown && begin > 0 && arrivals[begin].id == unknown_) begin = arrivals[begin].begin;
      if (is_unknown) {
        append_unknown(word.substr(begin, end - begin), ids);
      } else {
        ids.push_back(arrivals[end].id);
      }
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  }

 private:
  struct Arrival {  // the best way to cut what ends here
    double score = 0;
    size_t begin = std::string_view::npos;  // of its last token
    int32_t id = kNoToken;
  };

  UnigramModel(const JsonNode& node, UnigramPieces pieces)
      : TokenModel(std::move(pieces.vocabulary)), scores_(std::move(pieces.scores)) {
    const JsonNode unknown = node.at("unk_id");
    if (!unknown.is_null()) {
      unknown_ = static_cast<int32_t>(unknown.count(std::max<int64_t>(static_cast<int64_t>(scores_.size()) - 1, 0)));
    }
    if (scores_.empty()) node.at("vocab").refuse("it is empty.");
    for (const double score : scores_) worst_ = std::min(worst_, score);
    bytes_.fill(kNoToken);
    if (node.flag("byte_fallback", false)) {
      for (size_t byte = 0; byte < 256; ++byte) {
        bytes_[byte] = vocabulary_.id_of(byte_token(static_cast<unsigned char>(byte)));
      }
    }
    const auto& all = vocabulary_.all();
    trie_ = TokenTrie(std::vector<std::pair<std::string_view, int32_t>>(all.begin(), all.end()));
  }

  void find_best(std::string_view word, std::vector<Arrival>& arrivals, Budget& budget) const {
    for (size_t begin = 0; begin < word.size();) {
      const size_t size = size_of_character(word[begin]);
      const double before = arrivals[begin].score;
      bool has_character = false;
      const auto arrive = [&](size_t end, double score, int32_t id) {
        Arrival& there = arrivals[end];
        if (there.begin == std::string_view::npos || score > there.score) there = {score, begin, id};
      };
      budget.spend(trie_.for_each_prefix(word, begin, [&](size_t length, int32_t id) {
        arrive(begin + length, scores_[static_cast<size_t>(id)] + before, id);
        has_character = has_character || length == size;
      }));
      if (!has_character) arrive(begin + size, worst_ - kUnknownPenalty + before, known(unknown_, ""));
      begin += size;
    }
  }

  // In reverse, as the caller.
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
    const int32_t whole = vocabulary_.id_of(text);
    const auto has_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != kNoToken; };
    if (whole == kNoToken && std::all_of(text.begin(), text.end(), has_byte)) {
      for (size_t i = text.size(); i-- > 0;) ids.push_back(bytes_[static_cast<unsigned char>(text[i])]);
      return;
    }
    ids.push_back(whole == kNoToken ? unknown_ : whole);
  }

  std::vector<double> scores_;
  double worst_ = std::numeric_limits<double>::infinity();
  int32_t unknown_ = kNoToken;
  std::array<int32_t, 256> bytes_{};
  TokenTrie trie_;
};

}  // namespace

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
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxToken)) {
      node.refuse("token " + cut_text(token) + ": expected an id from 0 to " + std::to_string(kMaxToken) + ", saw " +
                  cut_text(id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) + ".");
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
        max_characters_(static_cast<size_t>(node.count("max_input_chars_per_word", 1 << 20, 100))) {
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
    bool is_known = count_characters(word) <= max_characters_;
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
  size_t max_characters_;
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
  if (type == "BPE") return std::make_unique<BpeModel>(node);
  if (type == "Unigram") return std::make_unique<UnigramModel>(node);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(node);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(node);
  node.at("type").refuse("the model " + cut_text(type) +
                         " is not supported. Known: BPE, WordPiece, Unigram, WordLevel.");
  return nullptr;
}

}  // namespace levin::tokenizers
