// The unigram language model of Kudo 2018 (https://aclanthology.org/P18-1007): of all ways to cut a text into tokens,
// the one whose scores, which are log-probabilities, have the greatest sum (Viterbi).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "levin/core/error.h"
#include "levin/data/tokenizers/token_model.h"
#include "levin/data/tokenizers/token_trie.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

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
  if (all.size() > static_cast<size_t>(kHighestToken)) {
    node.refuse("expected at most " + std::to_string(kHighestToken) + " tokens, saw " + std::to_string(all.size()) +
                ".");
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

std::unique_ptr<const TokenModel> make_unigram_model(const JsonNode& node) {
  return std::make_unique<UnigramModel>(node);
}

}  // namespace levin::tokenizers
