#include "levin/data/tokenizers/normalizer.h"

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
void rewrite(std::string& text, Use use) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    const Character next = character_at(text, i);
    use(result, next.code, std::string_view(text).substr(i, next.size));
    i += next.size;
  }
  text = std::move(result);
}

class FunctionNormalizer final : public Normalizer {
 public:
  using Function = void (*)(std::string& text);
  explicit FunctionNormalizer(Function function) : function_(function) {}
  void normalize(std::string& text) const override { function_(text); }

 private:
  Function function_;
};

void strip_accents(std::string& text) {
  if (is_ascii(text)) return;
  rewrite(text, [](std::string& to, char32_t code, std::string_view bytes) {
    if (!is_mark(code)) to += bytes;
  });
}

// Of sentencepiece's rule "nmt": control characters are removed and unusual spaces are spaces.
void nmt(std::string& text) {
  rewrite(text, [](std::string& to, char32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return;
    const bool blank = c == '\t' || c == '\n' || c == 0x0c || c == '\r' || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
                       c == 0xfffd;
    if (blank) to += ' ';
    if (!blank) to += bytes;
  });
}

void byte_characters(std::string& text) {
  std::string result;
  append_byte_characters(result, text);
  text = std::move(result);
}

void strip(std::string& text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end && is_space(character_at(text, begin).code)) begin += size_of_character(text[begin]);
  while (right && end > begin) {
    size_t last = end - 1;
    while ((text[last] & 0xc0) == 0x80) --last;
    if (!is_space(character_at(text, last).code)) break;
    end = last;
  }
  text = text.substr(begin, end - begin);
}

class StripNormalizer final : public Normalizer {
 public:
  explicit StripNormalizer(const JsonNode& node) : left_(node.flag("strip_left")), right_(node.flag("strip_right")) {}
  void normalize(std::string& text) const override { strip(text, left_, right_); }

 private:
  bool left_, right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(const JsonNode& node) : prepend_(node.text("prepend")) {}
  void normalize(std::string& text) const override {
    if (!text.empty()) text.insert(0, prepend_);
  }

 private:
  std::string prepend_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonNode& node)
      : pattern_(make_pattern(node.at("pattern"))), content_(node.text("content")) {}
  void normalize(std::string& text) const override { text = pattern_.replaced(text, content_); }

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

  void normalize(std::string& text) const override {
    if (cleans_ || parts_ideographs_) clean(text);
    if (strips_accents_ && !is_ascii(text)) {
      text = to_form(text, NormalForm::nfd);
      rewrite(text, [](std::string& to, char32_t code, std::string_view bytes) {
        if (!is_nonspacing_mark(code)) to += bytes;
      });
    }
    if (lowers_) text = to_lower(text);
  }

 private:
  void clean(std::string& text) const {
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
  void normalize(std::string& text) const override {
    const size_t before = text.size();
    for (const auto& one : normalizers_) {
      one->normalize(text);
      check_growth(before, text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> normalizers_;
};

FunctionNormalizer::Function normalizer_function(const std::string& type) {
  if (type == "NFC") return [](std::string& text) { text = to_form(text, NormalForm::nfc); };
  if (type == "NFD") return [](std::string& text) { text = to_form(text, NormalForm::nfd); };
  if (type == "NFKC") return [](std::string& text) { text = to_form(text, NormalForm::nfkc); };
  if (type == "NFKD") return [](std::string& text) { text = to_form(text, NormalForm::nfkd); };
  if (type == "Lowercase") return [](std::string& text) { text = to_lower(text); };
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
