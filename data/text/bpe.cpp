#include "levin/data/text/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin {

namespace {

// A word during encoding: its tokens as a linked list, so that joining two does not move the others.
struct Part {
  int32_t token;  // -1: joined to the one before
  int32_t before;
  int32_t after;  // -1: none
};

struct Candidate {
  int32_t rank;
  int32_t place;  // of the left token
  int32_t left;
  int32_t right;
  int32_t joined;
  // For a queue whose top is the lowest rank, and of those the leftmost.
  bool operator<(const Candidate& other) const { return std::pair(rank, place) > std::pair(other.rank, other.place); }
};

}  // namespace

void BpeTokenizer::take_tokens(const Ids& ids, const std::string& path) {
  int32_t highest = -1;
  for (const auto& [text, id] : ids) highest = std::max(highest, id);
  texts_.assign(static_cast<size_t>(highest) + 1, "");
  for (const auto& [text, id] : ids) {
    std::string& place = texts_[static_cast<size_t>(id)];
    if (!place.empty()) {
      throw DataError(path + ": two tokens have the number " + std::to_string(id) + ": " + cut_text(place) + " and " +
                      cut_text(text) + ".");
    }
    place = text;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      throw DataError(path + ": expected a token for every byte, but there is none for byte " + std::to_string(byte) +
                      ". Only byte-level BPE can be read.");
    }
    bytes_[static_cast<size_t>(byte)] = found->second;
  }
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<int32_t>& tokens) const {
  std::vector<Part> parts(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    parts[i] = {bytes_[static_cast<uint8_t>(word[i])], static_cast<int32_t>(i) - 1,
                i + 1 < word.size() ? static_cast<int32_t>(i) + 1 : -1};
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t place) {
    if (place < 0 || parts[static_cast<size_t>(place)].after < 0) return;
    const Part& left = parts[static_cast<size_t>(place)];
    const int32_t right = parts[static_cast<size_t>(left.after)].token;
    const auto found = merges_.find(pair_of(left.token, right));
    if (found != merges_.end()) queue.push({found->second.rank, place, left.token, right, found->second.token});
  };
  for (size_t i = 0; i < word.size(); ++i) consider(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Part& left = parts[static_cast<size_t>(best.place)];
    if (left.token != best.left || left.after < 0) continue;  // joined to another meanwhile
    Part& right = parts[static_cast<size_t>(left.after)];
    if (right.token != best.right) continue;
    left.token = best.joined;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) parts[static_cast<size_t>(left.after)].before = best.place;
    consider(left.before);
    consider(best.place);
  }
  for (const Part& part : parts) {
    if (part.token >= 0) tokens.push_back(part.token);
  }
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  struct Span {
    size_t first, count;
  };
  std::vector<int32_t> tokens;
  std::unordered_map<std::string_view, Span> known;  // positions of a word's tokens: most words are repeated
  while (!text.empty()) {
    const std::string_view word = detail::first_word(text, pattern_);
    text.remove_prefix(word.size());
    const auto [place, is_new] = known.try_emplace(word, Span{tokens.size(), 0});
    if (is_new) {
      encode_word(word, tokens);
      place->second.count = tokens.size() - place->second.first;
      continue;
    }
    for (size_t i = 0; i < place->second.count; ++i) tokens.push_back(tokens[place->second.first + i]);
  }
  return tokens;
}

std::string BpeTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<size_t>(tokens[i]);
    if (tokens[i] < 0 || token >= texts_.size() || texts_[token].empty()) {
      throw DataError("BpeTokenizer: token " + std::to_string(i) + ": expected one of the " +
                      count_of(texts_.size(), "token") + ", saw " + std::to_string(tokens[i]) + ".");
    }
    text += texts_[token];
  }
  return text;
}

}  // namespace levin
