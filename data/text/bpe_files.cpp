// The files that a BpeTokenizer is read from.
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/json_depth.h"
#include "levin/data/text/bpe.h"
#include "levin/data/tokenizers/base64.h"

namespace levin {

namespace {

constexpr uint64_t kMostBytes = uint64_t{256} << 20;  // of a file
constexpr int32_t kHighest = (1 << 24) - 1;           // token
constexpr size_t kLongestToken = 1 << 12;             // bytes; in base64: every way to cut it in two is tried

std::string read(const std::string& path) {
  try {
    return read_file(path, kMostBytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

[[noreturn]] void fail(const std::string& path, size_t line, const std::string& expected, std::string_view seen) {
  throw DataError(path + ":" + std::to_string(line) + ": expected " + expected + ", saw " +
                  cut_text(std::string(seen)) + ".");
}

// Calls use(line, number from 1) for every line of a text that is not empty.
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

// GPT-2's files write a byte as a character that can be seen: itself if it is printable in Latin-1, else a character
// from U+0100 on. Here: the byte by its character.
const std::unordered_map<char32_t, char>& byte_of_character() {
  static const auto table = [] {
    std::unordered_map<char32_t, char> bytes;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
      bytes[is_seen ? byte : next++] = static_cast<char>(byte);
    }
    return bytes;
  }();
  return table;
}

// The bytes of a token in GPT-2's files; nullopt: it is not written in that way (a special token).
std::optional<std::string> written_bytes(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const auto lead = static_cast<uint8_t>(token[i]);
    char32_t character = lead;
    size_t size = 1;
    if (lead >= 0x80) {  // the table has no character of more than two bytes
      if (lead < 0xc2 || lead > 0xdf || i + 1 == token.size()) return std::nullopt;
      character = static_cast<char32_t>((lead & 0x1f) << 6 | (static_cast<uint8_t>(token[i + 1]) & 0x3f));
      size = 2;
    }
    const auto found = byte_of_character().find(character);
    if (found == byte_of_character().end()) return std::nullopt;
    bytes.push_back(found->second);
    i += size;
  }
  return bytes;
}

std::unordered_map<std::string, int32_t> read_vocab(const std::string& path) {
  const auto json = parse_json(read(path));
  if (!json.is_object() || json.empty())
    throw DataError(path + ": expected a JSON object of tokens and their numbers.");
  std::unordered_map<std::string, int32_t> ids;
  for (const auto& [written, id] : json.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kHighest) {
      throw DataError(path + ": token " + cut_text(written) + ": expected a number from 0 to " +
                      std::to_string(kHighest) + ", saw " + cut_text(id.dump()) + ".");
    }
    const std::string bytes = written_bytes(written).value_or(written);
    if (bytes.size() > kLongestToken) {
      throw DataError(path + ": token " + cut_text(written) + ": expected at most " + std::to_string(kLongestToken) +
                      " bytes, saw " + std::to_string(bytes.size()) + ".");
    }
    if (bytes.empty() || !ids.emplace(bytes, id.get<int32_t>()).second) {
      throw DataError(path + ": token " + cut_text(written) + " is empty or there twice.");
    }
  }
  return ids;
}

}  // namespace

BpeTokenizer BpeTokenizer::from_ranks(const std::string& path, BpePattern pattern) {
  Ids ids;
  const std::string text = read(path);
  for_each_line(text, [&](std::string_view line, size_t number) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view code = line.substr(0, space);
    const auto bytes = code.size() <= kLongestToken ? tokenizers::from_base64(code) : std::nullopt;
    if (!bytes || bytes->empty()) fail(path, number, "a token in base64, a space and its rank", line);
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    int32_t rank = -1;
    const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (read_to.ec != std::errc() || read_to.ptr != digits.data() + digits.size() || rank < 0 || rank > kHighest) {
      fail(path, number, "a rank from 0 to " + std::to_string(kHighest), digits);
    }
    if (!ids.emplace(*bytes, rank).second) fail(path, number, "a token that was not there before", line);
  });
  BpeTokenizer tokenizer;
  tokenizer.pattern_ = pattern;
  tokenizer.take_tokens(ids, path);
  // tiktoken joins two tokens if the result has a rank.
  for (const auto& [token, rank] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = left == ids.end() ? ids.end() : ids.find(token.substr(cut));
      if (right != ids.end()) tokenizer.merges_[pair_of(left->second, right->second)] = {rank, rank};
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
    const auto left = written_bytes(line.substr(0, space));
    const auto right = written_bytes(line.substr(std::min(space + 1, line.size())));
    if (!left || !right || left->empty() || right->empty()) fail(merges_path, number, "two tokens and a space", line);
    const auto id = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) fail(merges_path, number, "tokens that are in " + vocab_path, token);
      return found->second;
    };
    tokenizer.merges_.try_emplace(pair_of(id(*left), id(*right)), Merge{rank++, id(*left + *right)});
  });
  return tokenizer;
}

}  // namespace levin
