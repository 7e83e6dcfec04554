#include "levin/data/text/bpe.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/data/tokenizers/bpe_words.h"
#include "levin/data/tokenizers/byte_characters.h"

namespace levin {

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;  // of a file
constexpr int32_t kMaxRank = (1 << 24) - 1;              // token
constexpr size_t kMaxTokenBytes = 1 << 12;               // bytes; in base64: every way to cut it in two is tried

std::string read(const std::string& path) {
  try {
    return read_file(path, kMaxFileBytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

[[noreturn]] void fail(const std::string& path, size_t line, const std::string& expected, std::string_view seen) {
  throw DataError(path + ":" + std::to_string(line) + ": expected " + expected + ", saw " +
                  cut_text(std::string(seen)) + ".");
}

// Calls use(line, number from 1) for every non-empty line.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  for (size_t start = 0, number = 1; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) use(line, number);
  }
}

std::unordered_map<std::string, int32_t> read_vocab(const std::string& path) {
  const auto json = parse_json(read(path));
  if (!json.is_object() || json.empty())
    throw DataError(path + ": expected a JSON object of tokens and their numbers.");
  std::unordered_map<std::string, int32_t> ids;
  for (const auto& [written, id] : json.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxRank) {
      throw DataError(path + ": token " + cut_text(written) + ": expected a number from 0 to " +
                      std::to_string(kMaxRank) + ", saw " + cut_text(id.dump()) + ".");
    }
    const std::string bytes = tokenizers::bytes_of_characters(written).value_or(written);
    if (bytes.size() > kMaxTokenBytes) {
      throw DataError(path + ": token " + cut_text(written) + ": expected at most " + std::to_string(kMaxTokenBytes) +
                      " bytes, saw " + std::to_string(bytes.size()) + ".");
    }
    if (bytes.empty() || !ids.emplace(bytes, id.get<int32_t>()).second) {
      throw DataError(path + ": token " + cut_text(written) + " is empty or a duplicate.");
    }
  }
  return ids;
}

}  // namespace

std::string_view detail::first_word(std::string_view text, BpePattern pattern) {
  return pattern == BpePattern::gpt2 ? tokenizers::first_gpt2_word(text) : tokenizers::first_cl100k_word(text);
}

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

BpeTokenizer BpeTokenizer::from_ranks(const std::string& path, BpePattern pattern) {
  Ids ids;
  const std::string text = read(path);
  for_each_line(text, [&](std::string_view line, size_t number) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view code = line.substr(0, space);
    const auto bytes = code.size() <= kMaxTokenBytes ? tokenizers::from_base64(code) : std::nullopt;
    if (!bytes || bytes->empty()) fail(path, number, "a token in base64, a space and its rank", line);
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    int32_t rank = -1;
    const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (read_to.ec != std::errc() || read_to.ptr != digits.data() + digits.size() || rank < 0 || rank > kMaxRank) {
      fail(path, number, "a rank from 0 to " + std::to_string(kMaxRank), digits);
    }
    if (!ids.emplace(*bytes, rank).second) fail(path, number, "a new token, found a duplicate", line);
  });
  BpeTokenizer tokenizer;
  tokenizer.pattern_ = pattern;
  tokenizer.take_tokens(ids, path);
  // tiktoken joins two tokens if the result has a rank.
  for (const auto& [token, rank] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = left == ids.end() ? ids.end() : ids.find(token.substr(cut));
      if (right != ids.end()) tokenizer.merges_.set(left->second, right->second, rank, rank);
    }
  }
  return tokenizer;
}

BpeTokenizer BpeTokenizer::from_merges(const std::string& vocab_path, const std::string& merges_path) {
  const Ids ids = read_vocab(vocab_path);
  BpeTokenizer tokenizer;
  tokenizer.take_tokens(ids, vocab_path);
  int32_t rank = 0;
  const std::string text = read(merges_path);
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (number == 1 && line.starts_with("#version")) return;
    const size_t space = std::min(line.find(' '), line.size());
    const auto left = tokenizers::bytes_of_characters(line.substr(0, space));
    const auto right = tokenizers::bytes_of_characters(line.substr(std::min(space + 1, line.size())));
    if (!left || !right || left->empty() || right->empty()) fail(merges_path, number, "two tokens and a space", line);
    const auto id = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) fail(merges_path, number, "tokens that are in " + vocab_path, token);
      return found->second;
    };
    tokenizer.merges_.set(id(*left), id(*right), rank++, id(*left + *right));
  });
  return tokenizer;
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
      for (const char byte : word) tokens.push_back(bytes_[static_cast<uint8_t>(byte)]);
      merges_.join(tokens, place->second.first);
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
