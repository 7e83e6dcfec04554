// The map of sentencepiece's normalizer, as XLM-R's and T5's tokenizer.json keep it: 4 bytes, the size of a trie in
// bytes; the trie, a double array of 32-bit units (Yata's darts-clone); then texts that end in a zero byte, to whose
// begin the trie's values point.
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "levin/core/error.h"
#include "levin/data/tokenizers/base64.h"
#include "levin/data/tokenizers/normalizer.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

static_assert(std::endian::native == std::endian::little, "the map is read as it is in the file");

class PrecompiledNormalizer final : public Normalizer {
 public:
  PrecompiledNormalizer(std::vector<uint32_t> trie, std::string texts)
      : trie_(std::move(trie)), texts_(std::move(texts)) {}

  void normalize(NormalText& whole, Budget& budget) const override {
    const std::string text = std::move(whole.text);
    Result result;
    result.text.reserve(text.size() + text.size() / 8);
    result.first_left = count_characters(std::string_view(text).substr(0, whole.first));
    for (size_t i = 0; i < text.size();) {
      // Between two characters of ASCII there is a border, but for "\r\n".
      const bool is_alone = static_cast<unsigned char>(text[i]) < 0x80 && text[i] != '\r' &&
                            (i + 1 == text.size() || static_cast<unsigned char>(text[i + 1]) < 0x80);
      const std::string_view rest = std::string_view(text).substr(i);
      const size_t size = is_alone ? 1 : first_grapheme(rest);
      append_mapped(rest.substr(0, size), result, budget);
      i += size;
    }
    whole = {std::move(result.text), result.first};
  }

 private:
  struct Result {
    std::string text = "";
    size_t first = 0;       // see NormalText
    size_t first_left = 0;  // of the characters before the map, those that still may count to it

    // As the package counts: character by character, what there are more to the last; and what is removed from the
    // very beginning is not counted, so that the next character takes its place.
    void append(std::string_view from, std::string_view to) {
      const size_t begin = text.size();
      text += to;
      if (first_left == 0 || text.empty()) return;
      const size_t characters = count_characters(from);
      size_t end = begin;
      for (size_t i = 0; end < text.size() && (i < first_left || characters <= first_left); ++i) {
        end += size_of_character(text[end]);
      }
      first = end;
      first_left -= std::min(first_left, characters);
    }
  };

  // A short cluster as a whole, if the map has what it begins with, as the package does; else by its characters.
  void append_mapped(std::string_view cluster, Result& result, Budget& budget) const {
    const auto append = [&](std::string_view from, std::string_view to) {
      budget.check_bytes(result.text.size() + to.size());
      result.append(from, to);
    };
    if (const auto mapped = cluster.size() < 6 ? replacement(cluster) : std::nullopt) return append(cluster, *mapped);
    for (size_t i = 0; i < cluster.size();) {
      const std::string_view one = cluster.substr(i, size_of_character(cluster[i]));
      append(one, replacement(one).value_or(one));
      i += one.size();
    }
  }

  // By the shortest key that `key` begins with; nullopt: there is none.
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view key) const {
    size_t at = offset_of(unit(0));
    for (const char byte : key) {
      if (byte == '\0') return std::nullopt;
      at ^= static_cast<unsigned char>(byte);
      const uint32_t next = unit(at);
      if ((next & 0x800000ffU) != static_cast<unsigned char>(byte)) return std::nullopt;
      at ^= offset_of(next);
      if ((next >> 8 & 1) == 0) continue;
      const size_t begin = unit(at) & 0x7fffffffU;
      const size_t end = begin <= texts_.size() ? texts_.find('\0', begin) : std::string::npos;
      if (end == std::string::npos || (texts_[begin] & 0xc0) == 0x80) fail();  // or within a character
      return std::string_view(texts_).substr(begin, end - begin);
    }
    return std::nullopt;
  }

  static size_t offset_of(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 0x200U) >> 6); }
  [[nodiscard]] uint32_t unit(size_t at) const {
    if (at >= trie_.size()) fail();
    return trie_[at];
  }
  [[noreturn]] static void fail() {
    throw DataError("tokenizer.json: precompiled_charsmap: an entry points outside of the map. The file is damaged.");
  }

  std::vector<uint32_t> trie_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_precompiled_normalizer(const JsonNode& node) {
  const JsonNode map = node.at("precompiled_charsmap");
  const std::string code = map.text();
  if (code.empty()) return nullptr;
  const auto bytes = from_base64(code);
  uint32_t trie_size = 0;
  if (bytes && bytes->size() >= 4) std::memcpy(&trie_size, bytes->data(), 4);
  if (!bytes || trie_size < 4 || trie_size % 4 != 0 || trie_size > bytes->size() - 4) {
    map.refuse("expected sentencepiece's map in base64 (the size of a trie, the trie, texts), saw " +
               std::to_string(code.size()) + " characters that are not.");
    return nullptr;
  }
  std::vector<uint32_t> trie(trie_size / 4);
  std::memcpy(trie.data(), bytes->data() + 4, trie_size);
  std::string texts = bytes->substr(4 + size_t{trie_size});
  if (valid_utf8(texts) != texts) {
    map.refuse("the texts of the map are not UTF-8.");
    return nullptr;
  }
  texts.push_back('\0');
  return std::make_unique<PrecompiledNormalizer>(std::move(trie), std::move(texts));
}

}  // namespace levin::tokenizers
