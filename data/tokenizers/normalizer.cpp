#include "levin/data/tokenizers/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/data/tokenizers/byte_characters.h"
#include "levin/data/tokenizers/pattern.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

constexpr int kDeepest = 16;  // Sequence in Sequence

// Calls use(code, bytes of the character) for every character and makes a text of what use appends to it.
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
  if (type == "Sequence" && depth < kDeepest) return std::make_unique<NormalizerSequence>(node, depth);
  if (!type.empty()) node.at("type").refuse("the normalizer " + type + " is not supported.");
  return nullptr;
}

}  // namespace levin::tokenizers
