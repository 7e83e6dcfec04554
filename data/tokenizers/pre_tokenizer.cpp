#include "levin/data/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/data/tokenizers/bpe_words.h"
#include "levin/data/tokenizers/pattern.h"
#include "levin/data/tokenizers/unicode.h"
#include "levin/data/tokenizers/unicode_versions.h"

namespace levin::tokenizers {

namespace {

constexpr int kMaxSequenceDepth = 16;

using IsCharacter = bool (*)(char32_t);

void find_pieces_of(const Pattern& pattern, bool inverts, std::string_view word, std::vector<Piece>& pieces,
                    Budget& budget) {
  size_t end = 0;
  const auto find_next = [&](std::string_view in, size_t from, Regex::Match& match) {
    return pattern.find(in, from, match, budget);
  };
  for_each_match(word, find_next, [&](size_t begin, size_t match_end) {
    if (begin > end) pieces.push_back({end, begin, inverts});
    pieces.push_back({begin, match_end, !inverts});
    end = match_end;
  });
  if (end < word.size()) pieces.push_back({end, word.size(), inverts});
}

void find_pieces_of(IsCharacter is_match, std::string_view word, std::vector<Piece>& pieces) {
  size_t end = 0;
  for (size_t i = 0; i < word.size();) {
    const Character next = character_at(word, i);
    if (is_match(next.code)) {
      if (i > end) pieces.push_back({end, i, false});
      pieces.push_back({i, i + next.size, true});
      end = i + next.size;
    }
    i += next.size;
  }
  if (end < word.size()) pieces.push_back({end, word.size(), false});
}

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool inverts)
      : pattern_(std::move(pattern)), behavior_(behavior), inverts_(inverts) {}
  void cut(Words& words) const override {
    split_words(words, behavior_, [&](std::string_view word, std::vector<Piece>& pieces) {
      find_pieces_of(pattern_, inverts_, word, pieces, words.budget);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool inverts_;
};

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(IsCharacter is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void cut(Words& words) const override {
    split_words(words, behavior_,
                [&](std::string_view word, std::vector<Piece>& pieces) { find_pieces_of(is_match_, word, pieces); });
  }

 private:
  IsCharacter is_match_;
  SplitBehavior behavior_;
};

// Spaces are left out and punctuation stands alone: in one pass, because BERT's tokenizers do nothing else.
class BertSplit final : public PreTokenizer {
 public:
  void cut(Words& words) const override {
    std::vector<Word> cut;
    for (const Word& word : words.list) {
      size_t begin = word.begin;
      const auto end_word = [&](size_t end) {
        if (end > begin) cut.push_back(word.part(begin - word.begin, end - word.begin));
      };
      for (size_t i = word.begin; i < word.end;) {
        const Character next = character_at(words.text, i);
        const bool space = is_space(next.code);
        if (space || is_punctuation(next.code)) {
          end_word(i);
          begin = i;
          if (!space) end_word(i + next.size);
          begin = i + next.size;
        }
        i += next.size;
      }
      end_word(word.end);
    }
    words.list = std::move(cut);
  }
};

// \w+|[^\w\s]+
class WhitespaceSplit final : public PreTokenizer {
 public:
  void cut(Words& words) const override {
    split_words(words, SplitBehavior::isolated, [](std::string_view word, std::vector<Piece>& pieces) {
      enum class CharacterKind { space, letter, other };
      CharacterKind before = CharacterKind::space;
      for (size_t i = 0; i < word.size();) {
        const Character next = character_at(word, i);
        const CharacterKind kind = is_space(next.code)  ? CharacterKind::space
                                   : is_word(next.code) ? CharacterKind::letter
                                                        : CharacterKind::other;
        if (kind != CharacterKind::space && kind == before) pieces.back().end = i + next.size;
        if (kind != CharacterKind::space && kind != before) pieces.push_back({i, i + next.size, true});
        before = kind;
        i += next.size;
      }
    });
  }
};

class ByteLevelSplit final : public PreTokenizer {
 public:
  explicit ByteLevelSplit(const JsonNode& node)
      : adds_space_(node.flag("add_prefix_space")), splits_(node.flag("use_regex", true)) {}
  void cut(Words& words) const override {
    words.write_bytes();
    if (adds_space_) {
      rewrite_words(
          words, [](std::string_view word, const Word&) { return word.starts_with(' ') ? "" : " "; },
          [](std::string_view part, std::string& to) { to += part; });
    }
    if (splits_) {
      split_words(words, SplitBehavior::isolated, [&](std::string_view word, std::vector<Piece>& pieces) {
        for (size_t begin = 0; begin < word.size(); begin = pieces.back().end) {
          pieces.push_back({begin, begin + first_gpt2_word(word.substr(begin)).size(), true});
        }
      });
    }
    words.are_bytes = true;
  }

 private:
  bool adds_space_;
  bool splits_;
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  explicit MetaspaceSplit(const JsonNode& node) : options_(read_metaspace(node)) {
    append(replacement_, options_.replacement);
  }
  void cut(Words& words) const override {
    using Prepend = MetaspaceOptions::Prepend;
    const auto prefix = [&](std::string_view word, const Word& place) {
      const bool prepends =
          options_.prepend == Prepend::always || (options_.prepend == Prepend::first && place.first > 0);
      const bool has_one = word.starts_with(' ') || word.starts_with(replacement_);
      return prepends && !has_one ? std::string_view(replacement_) : std::string_view();
    };
    rewrite_words(words, prefix, [&](std::string_view part, std::string& to) {
      for (size_t begin = 0; begin <= part.size();) {
        const size_t end = std::min(part.find(' ', begin), part.size());
        to += part.substr(begin, end - begin);
        if (end < part.size()) to += replacement_;
        begin = end + 1;
      }
    });
    if (options_.splits) split(words);
  }

 private:
  void split(Words& words) const {
    const Pattern pattern(replacement_);
    split_words(words, SplitBehavior::merged_with_next, [&](std::string_view word, std::vector<Piece>& pieces) {
      find_pieces_of(pattern, false, word, pieces, words.budget);
    });
  }

  MetaspaceOptions options_;
  std::string replacement_;
};

// A word for each run of one script. Spaces and what has no script belong to the word before; before the first they are
// left out, as the package does.
class ScriptSplit final : public PreTokenizer {
 public:
  void cut(Words& words) const override {
    split_words(words, SplitBehavior::isolated, [](std::string_view word, std::vector<Piece>& pieces) {
      int before = kAnyScript;
      for (size_t i = 0; i < word.size();) {
        const Character next = character_at(word, i);
        const int script = script_of(next.code);
        i += next.size;
        if (script != kAnyScript && script != before) pieces.push_back({i - next.size, i, true});
        if (script != kAnyScript) before = script;
        if (!pieces.empty()) pieces.back().end = i;
      }
    });
  }
};

class FixedLengthSplit final : public PreTokenizer {
 public:
  explicit FixedLengthSplit(const JsonNode& node) : length_(std::max<int64_t>(node.count("length", 1 << 24), 1)) {}
  void cut(Words& words) const override {
    split_words(words, SplitBehavior::isolated, [&](std::string_view word, std::vector<Piece>& pieces) {
      int64_t count = 0;
      for (size_t i = 0; i < word.size(); i += size_of_character(word[i])) {
        if (count++ % length_ == 0) pieces.push_back({i, word.size(), true});
      }
      for (size_t i = 1; i < pieces.size(); ++i) pieces[i - 1].end = pieces[i].begin;
    });
  }

 private:
  int64_t length_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  PreTokenizerSequence(const JsonNode& node, int depth) {
    for (const JsonNode& one : node.at("pretokenizers").elements()) {
      if (auto made = make_pre_tokenizer(one, depth + 1)) parts_.push_back(std::move(made));
    }
  }
  void cut(Words& words) const override {
    for (const auto& part : parts_) {
      words.budget.spend(words.text.size());
      words.write_bytes();
      part->cut(words);
    }
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.text("behavior", "Isolated");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  if (name != "Isolated") {
    node.at("behavior").refuse_value("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  }
  return SplitBehavior::isolated;
}

}  // namespace

MetaspaceOptions read_metaspace(const JsonNode& node) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions options;
  options.replacement = node.character("replacement");
  const std::string prepend = node.text("prepend_scheme", "always");
  if (prepend != "first" && prepend != "never" && prepend != "always") {
    node.at("prepend_scheme").refuse_value("first, never or always");
  }
  options.prepend = prepend == "first" ? Prepend::first : prepend == "never" ? Prepend::never : Prepend::always;
  if (!node.flag("add_prefix_space", true)) {  // how older files say never
    if (options.prepend == Prepend::first) node.refuse("prepend_scheme: first contradicts add_prefix_space: false.");
    options.prepend = Prepend::never;
  }
  options.splits = node.flag("split", true);
  return options;
}

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const JsonNode& node, int depth) {
  if (node.is_null()) return nullptr;
  const std::string type = node.text("type");
  if (type == "ByteLevel") return std::make_unique<ByteLevelSplit>(node);
  if (type == "BertPreTokenizer") return std::make_unique<BertSplit>();
  if (type == "Whitespace") return std::make_unique<WhitespaceSplit>();
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplit>(is_space, SplitBehavior::removed);
  if (type == "Punctuation") return std::make_unique<CharacterSplit>(is_punctuation, read_behavior(node));
  if (type == "Digits") {
    const bool alone = node.flag("individual_digits", false);
    return std::make_unique<CharacterSplit>(is_numeric, alone ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  if (type == "Split") {
    return std::make_unique<PatternSplit>(make_pattern(node.at("pattern")), read_behavior(node),
                                          node.flag("invert", false));
  }
  if (type == "CharDelimiterSplit") {
    std::string delimiter;
    append(delimiter, node.character("delimiter"));
    return std::make_unique<PatternSplit>(Pattern(delimiter), SplitBehavior::removed, false);
  }
  if (type == "Metaspace") return std::make_unique<MetaspaceSplit>(node);
  if (type == "UnicodeScripts") return std::make_unique<ScriptSplit>();
  if (type == "FixedLength") return std::make_unique<FixedLengthSplit>(node);
  if (type == "Sequence" && depth < kMaxSequenceDepth) return std::make_unique<PreTokenizerSequence>(node, depth);
  if (!type.empty()) node.at("type").refuse("the pre-tokenizer " + type + " is not supported.");
  return nullptr;
}

}  // namespace levin::tokenizers
