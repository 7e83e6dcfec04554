#include "levin/data/tokenizers/normalizer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/byte_characters.h"
#include "levin/data/tokenizers/pattern.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

constexpr int kMaxDepth = 16;  // Sequence in Sequence

// Calls use(code, bytes of the character) for every character and returns the text that `use` appends to.
template <class Use>
void rewrite(NormalText& text, Use use) {
  const std::string before = std::move(text.text);
  std::string result;
  result.reserve(before.size() + before.size() / 8);
  size_t first = 0;
  for (size_t i = 0; i < before.size();) {
    const Character next = character_at(before, i);
    use(result, next.code, std::string_view(before).substr(i, next.size));
    if (i < text.first) first = result.size();
    i += next.size;
  }
  text = {std::move(result), first};
}

// For a function of a whole text.
template <class Map>
void map_text(NormalText& text, Map map) {
  std::string result = map(text.text);
  size_t first = text.first == 0 ? 0 : std::min(map(text.text.substr(0, text.first)).size(), result.size());
  while (first > 0 && first < result.size() && (result[first] & 0xc0) == 0x80) ++first;  // joined with what follows
  text = {std::move(result), first};
}

class FunctionNormalizer final : public Normalizer {
 public:
  using Function = void (*)(NormalText& text);
  explicit FunctionNormalizer(Function function) : function_(function) {}
  void normalize(NormalText& text, Budget& budget) const override {
    function_(text);
    budget.check_bytes(text.text.size());
  }

 private:
  Function function_;
};

void strip_accents(NormalText& text) {
  if (is_ascii(text.text)) return;
  rewrite(text, [](std::string& to, char32_t code, std::string_view bytes) {
    if (!is_mark(code)) to += bytes;
  });
}

// Of sentencepiece's rule "nmt": control characters are removed and unusual spaces are spaces.
void nmt(NormalText& text) {
  rewrite(text, [](std::string& to, char32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return;
    const bool blank = c == '\t' || c == '\n' || c == 0x0c || c == '\r' || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
                       c == 0xfffd;
    if (blank) to += ' ';
    if (!blank) to += bytes;
  });
}

void byte_characters(NormalText& text) {
  rewrite(text, [](std::string& to, char32_t, std::string_view bytes) { append_byte_characters(to, bytes); });
}

void strip(NormalText& whole, bool left, bool right) {
  const std::string& text = whole.text;
  size_t begin = 0, end = text.size();
  while (left && begin < end && is_space(character_at(text, begin).code)) begin += size_of_character(text[begin]);
  while (right && end > begin) {
    size_t last = end - 1;
    while ((text[last] & 0xc0) == 0x80) --last;
    if (!is_space(character_at(text, last).code)) break;
    end = last;
  }
  whole = {text.substr(begin, end - begin), std::min(std::max(whole.first, begin), end) - begin};
}

class StripNormalizer final : public Normalizer {
 public:
  explicit StripNormalizer(const JsonNode& node) : left_(node.flag("strip_left")), right_(node.flag("strip_right")) {}
  void normalize(NormalText& text, Budget&) const override { strip(text, left_, right_); }

 private:
  bool left_, right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(const JsonNode& node) : prepend_(node.text("prepend")) {}
  void normalize(NormalText& text, Budget& budget) const override {
    if (text.text.empty()) return;
    budget.check_bytes(text.text.size() + prepend_.size());
    text.text.insert(0, prepend_);
    if (text.first > 0) text.first += prepend_.size();
  }

 private:
  std::string prepend_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonNode& node)
      : pattern_(make_pattern(node.at("pattern"))), content_(node.text("content")) {}
  void normalize(NormalText& text, Budget& budget) const override {
    text.text = pattern_.replaced(text.text, content_, budget, text.first);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// The blocks of CJK's ideographs, as BERT's tokenizer lists them: without hiragana, katakana and hangul, and not all of
// the extensions.
bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x2f800 && c <= 0x2fa1f);
}

// Devlin et al. 2018, BasicTokenizer: control characters, ideographs, accents and capitals.
class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonNode& node)
      : cleans_(node.flag("clean_text", true)),
        parts_ideographs_(node.flag("handle_chinese_chars", true)),
        lowers_(node.flag("lowercase", true)),
        strips_accents_(node.flag("strip_accents", lowers_)) {}

  void normalize(NormalText& text, Budget& budget) const override {
    if (cleans_ || parts_ideographs_) clean(text);
    budget.check_bytes(text.text.size());
    if (strips_accents_ && !is_ascii(text.text)) {
      map_text(text, [](const std::string& of) { return to_form(of, NormalForm::nfd); });
      rewrite(text, [](std::string& to, char32_t code, std::string_view bytes) {
        if (!is_nonspacing_mark(code)) to += bytes;
      });
    }
    if (lowers_) map_text(text, [](const std::string& of) { return to_lower(of); });
  }

 private:
  void clean(NormalText& text) const {
    rewrite(text, [&](std::string& to, char32_t c, std::string_view bytes) {
      if (c > ' ' && c < 0x7f) {
        to += bytes;
        return;
      }
      if (cleans_) {
        if (c == '\t' || c == '\n' || c == '\r' || (c != 0 && is_space(c) && !is_control(c))) {
          to += ' ';
          return;
        }
        if (c == 0 || c == 0xfffd || is_control(c)) return;
      }
      if (!parts_ideographs_ || !is_ideograph(c)) {
        to += bytes;
        return;
      }
      to += ' ';
      to += bytes;
      to += ' ';
    });
  }

  bool cleans_, parts_ideographs_, lowers_, strips_accents_;
};

class NormalizerSequence final : public Normalizer {
 public:
  NormalizerSequence(const JsonNode& node, int depth) {
    for (const JsonNode& one : node.at("normalizers").elements()) {
      if (auto made = make_normalizer(one, depth + 1)) normalizers_.push_back(std::move(made));
    }
  }
  void normalize(NormalText& text, Budget& budget) const override {
    for (const auto& one : normalizers_) {
      budget.spend(text.text.size());
      one->normalize(text, budget);
    }
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> normalizers_;
};

template <NormalForm form>
void normal_form(NormalText& text) {
  map_text(text, [](const std::string& of) { return to_form(of, form); });
}

FunctionNormalizer::Function normalizer_function(const std::string& type) {
  if (type == "NFC") return normal_form<NormalForm::nfc>;
  if (type == "NFD") return normal_form<NormalForm::nfd>;
  if (type == "NFKC") return normal_form<NormalForm::nfkc>;
  if (type == "NFKD") return normal_form<NormalForm::nfkd>;
  if (type == "Lowercase") {
    return [](NormalText& text) { map_text(text, [](const std::string& of) { return to_lower(of); }); };
  }
  if (type == "StripAccents") return strip_accents;
  if (type == "Nmt") return nmt;
  if (type == "ByteLevel") return byte_characters;
  return nullptr;
}

// The map of sentencepiece's normalizer, as XLM-R's and T5's tokenizer.json keep it: 4 bytes, the size of a trie in
// bytes; the trie, a double array of 32-bit units (Yata's darts-clone); then strings that end in a zero byte, to whose
// begin the trie's values point.

static_assert(std::endian::native == std::endian::little, "the map is read in the byte order of the file");

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
    size_t first_left = 0;  // characters before the map that may still count towards `first`

    // Counts as the sentencepiece package does: character by character, surplus characters counting to the last one.
    // Characters removed from the very beginning are not counted; the next character counts instead.
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

// sentencepiece's character map in base64: a trie and the replacement strings.
std::unique_ptr<const Normalizer> make_precompiled_normalizer(const JsonNode& node) {
  const JsonNode map = node.at("precompiled_charsmap");
  const std::string code = map.text();
  if (code.empty()) return nullptr;
  const auto bytes = from_base64(code);
  uint32_t trie_size = 0;
  if (bytes && bytes->size() >= 4) std::memcpy(&trie_size, bytes->data(), 4);
  if (!bytes || trie_size < 4 || trie_size % 4 != 0 || trie_size > bytes->size() - 4) {
    map.refuse("expected sentencepiece's map in base64 (the size of a trie, the trie, strings), saw " +
               std::to_string(code.size()) + " characters that are not.");
    return nullptr;
  }
  std::vector<uint32_t> trie(trie_size / 4);
  std::memcpy(trie.data(), bytes->data() + 4, trie_size);
  std::string texts = bytes->substr(4 + size_t{trie_size});
  if (valid_utf8(texts) != texts) {
    map.refuse("the strings of the map are not UTF-8.");
    return nullptr;
  }
  texts.push_back('\0');
  return std::make_unique<PrecompiledNormalizer>(std::move(trie), std::move(texts));
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const JsonNode& node, int depth) {
  if (node.is_null()) return nullptr;
  const std::string type = node.text("type");
  if (const auto function = normalizer_function(type)) return std::make_unique<FunctionNormalizer>(function);
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(node);
  if (type == "Strip") return std::make_unique<StripNormalizer>(node);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(node);
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(node);
  if (type == "Precompiled") return make_precompiled_normalizer(node);
  if (type == "Sequence" && depth < kMaxDepth) return std::make_unique<NormalizerSequence>(node, depth);
  if (!type.empty()) node.at("type").refuse("the normalizer " + type + " is not supported.");
  return nullptr;
}

}  // namespace levin::tokenizers
