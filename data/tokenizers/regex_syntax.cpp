// Oniguruma's syntax in PCRE2's: what both mean alike stays, what they do not is rewritten, the rest is refused.
// https://github.com/kkos/oniguruma/blob/master/doc/RE and `man pcre2pattern`.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "levin/core/error.h"
#include "levin/data/tokenizers/regex.h"

namespace levin::tokenizers {

namespace {

constexpr size_t kLongestPattern = 64 << 10;  // bytes; those of known tokenizers have a few hundred
constexpr size_t kLongestName = 32;           // of what stands in [: :] or in \x{ }

// What \w means inside [ ]. Alone, and for \b, it also means six numbers of Latin-1 in Oniguruma.
constexpr const char* kWordInSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr const char* kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";

// Of [:alpha:] and the like, as Oniguruma has them for Unicode.
constexpr std::pair<std::string_view, const char*> kPosixBrackets[] = {{"alnum", "\\p{Alphabetic}\\p{Nd}"},
                                                                       {"alpha", "\\p{Alphabetic}"},
                                                                       {"ascii", "\\x00-\\x7f"},
                                                                       {"blank", "\\p{Zs}\\t"},
                                                                       {"cntrl", "\\p{Cc}"},
                                                                       {"digit", "\\p{Nd}"},
                                                                       {"lower", "\\p{Lowercase}"},
                                                                       {"punct", "\\p{P}\\p{S}"},
                                                                       {"space", "\\p{White_Space}"},
                                                                       {"upper", "\\p{Uppercase}"},
                                                                       {"word", kWordInSet},
                                                                       {"xdigit", "0-9a-fA-F"}};

class PatternTranslator {
 public:
  explicit PatternTranslator(const std::string& pattern) : in_(pattern) {}

  std::string translated() {
    if (in_.size() > kLongestPattern) {
      throw Error("expected a pattern of at most " + std::to_string(kLongestPattern) + " bytes, saw one of " +
                  std::to_string(in_.size()) + ": " + cut_text(in_) + ". Cut it into several steps of a Sequence");
    }
    while (at_ < in_.size()) step();
    if (!groups_.empty()) refuse("a group that is not closed");
    std::sort(repeated_.begin(), repeated_.end());
    std::string all;
    size_t end = 0;
    for (const size_t begin : repeated_) {
      all.append(out_, end, begin - end).append("(?:");
      end = begin;
    }
    return all.append(out_, end);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("the pattern " + cut_text(in_) + " has " + what + ", which is not supported");
  }
  [[nodiscard]] bool next_is(const char* text) const {
    return in_.compare(at_, std::char_traits<char>::length(text), text) == 0;
  }

  // A few bytes from there on: a search to the end of the pattern, for each of many brackets, would be slow.
  [[nodiscard]] std::string_view ahead(size_t skipped) const {
    return std::string_view(in_).substr(at_ + skipped, kLongestName);
  }

  void step() {
    const char c = in_[at_];
    if (c == '\\') return escape(false);
    if (c == '[') return character_class();
    if (c == '(') return open_group();
    if (c == ')') return close_group();
    if (c == '{') return braces();
    if (c == '*' || c == '+' || c == '?' || c == '|') {
      out_ += c;
      ++at_;
      return;
    }
    atom_ = out_.size();
    do out_ += in_[at_++];
    while (at_ < in_.size() && (in_[at_] & 0xc0) == 0x80);
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (next_is("(*")) refuse("(*…), which Oniguruma calls a callout");
    if (next_is("(?~")) refuse("an absence operator, (?~…)");
    out_ += '(';
    ++at_;
    if (!next_is("?")) return;
    out_ += '?';
    ++at_;
    if (next_is("<") || next_is("=") || next_is("!") || next_is(">") || next_is(":") || next_is("#")) return;
    // Options: i and x mean the same in both.
    while (at_ < in_.size() && in_[at_] != ':' && in_[at_] != ')') {
      if (in_[at_] != 'i' && in_[at_] != 'x' && in_[at_] != '-')
        refuse("the option \"" + std::string(1, in_[at_]) + "\"");
      out_ += in_[at_++];
    }
  }

  void close_group() {
    if (groups_.empty()) refuse("a ) without a group");
    atom_ = groups_.back();
    groups_.pop_back();
    out_ += ')';
    ++at_;
  }

  // {n,m}+ repeats the repetition in Oniguruma and is possessive in PCRE2; {n}? is optional and lazy.
  void braces() {
    size_t end = at_ + 1;
    while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == ',')) ++end;
    const std::string inside = in_.substr(at_ + 1, end - at_ - 1);
    const bool repeats = end < in_.size() && in_[end] == '}' && !inside.empty() && inside != ",";
    if (!repeats) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    const std::string count = "{" + (inside[0] == ',' ? "0" + inside : inside) + "}";
    const bool is_exact = inside.find(',') == std::string::npos;
    if (next_is("+") || (next_is("?") && is_exact)) {
      repeated_.push_back(atom_);
      out_ += count + ")" + in_[at_++];
    } else {
      out_ += count;
    }
  }

  void escape(bool in_class) {
    if (at_ + 1 == in_.size()) refuse("a \\ at its end");
    const char c = in_[at_ + 1];
    if (!in_class) atom_ = out_.size();
    at_ += 2;
    switch (c) {
      case 's': out_ += "\\p{White_Space}"; return;
      case 'S': out_ += "\\P{White_Space}"; return;
      case 'w': out_ += in_class ? kWordInSet : "[" + std::string(kWordClass) + "]"; return;
      case 'h': out_ += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"; return;
      case 'p':
      case 'P': return property(c);
      case 'u': return hex_escape();
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'v':
      case 'e':
      case 'a':
      case 'x': break;
      case 'W':
      case 'H':
        out_ += c == 'W' ? "[^" + std::string(in_class ? kWordInSet : kWordClass) + "]" : "[^0-9a-fA-F]";
        return;
      case 'b':
      case 'B':
        if (in_class) break;
        return word_boundary(c == 'b');
      case 'A':
      case 'z':
      case 'Z':
      case 'R':
        if (!in_class) break;
        [[fallthrough]];
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse("\\" + std::string(1, c));
    }
    // Vertical tabulator in Oniguruma, any vertical space in PCRE2.
    out_ += c == 'v' ? std::string("\\x0b") : std::string("\\") + c;
    const size_t size = c == 'x' && next_is("{") ? ahead(0).find('}') : std::string_view::npos;
    if (size != std::string_view::npos) {
      out_ += ahead(0).substr(0, size + 1);
      at_ += size + 1;
    }
    if ((c & 0x80) != 0) {
      while (at_ < in_.size() && (in_[at_] & 0xc0) == 0x80) out_ += in_[at_++];
    }
  }

  void word_boundary(bool is_one) {
    const std::string word = "[" + std::string(kWordClass) + "]";
    out_ += is_one ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                   : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
  }

  // A script's name alone means its extensions as well in PCRE2.
  void property(char kind) {
    const size_t end = in_.find('}', at_);
    if (at_ == in_.size() || in_[at_] != '{' || end == std::string::npos) refuse("\\p without { }");
    std::string name = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const bool is_negative = !name.empty() && name[0] == '^';
    if (is_negative) name.erase(0, 1);
    const bool is_category = name.size() <= 2 || name == "Any" || name == "Alphabetic" || name == "White_Space";
    out_ +=
        std::string("\\") + (is_negative == (kind == 'p') ? 'P' : 'p') + "{" + (is_category ? "" : "sc:") + name + "}";
  }

  void hex_escape() {
    const std::string digits = in_.substr(at_, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      refuse("\\u without four hexadecimal digits");
    }
    out_ += "\\x{" + digits + "}";
    at_ += 4;
  }

  // A set of characters. PCRE2 has no sets within sets and no intersections: they become alternatives and assertions.
  struct CharacterSet {
    std::string items = "";                // what stands between [ and ]
    std::vector<std::string> others = {};  // patterns of a character
    bool is_negated = false;

    [[nodiscard]] std::string pattern() const {
      if (others.empty()) return (is_negated ? "[^" : "[") + items + "]";
      std::string any = items.empty() ? "" : "[" + items + "]";
      for (const std::string& other : others) any += (any.empty() ? "" : "|") + other;
      return is_negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
    }
    void add(const CharacterSet& inner) {
      const auto ends_in_hyphen = [](const std::string& text) { return text.starts_with('-') || text.ends_with('-'); };
      if (inner.others.empty() && !inner.is_negated && !ends_in_hyphen(items) && !ends_in_hyphen(inner.items)) {
        items += inner.items;
      } else {
        others.push_back(inner.pattern());
      }
    }
  };

  void character_class() {
    atom_ = out_.size();
    out_ += read_set(0).pattern();
  }

  CharacterSet read_set(int depth) {
    constexpr int deepest = 20;
    if (depth == deepest) refuse(std::to_string(deepest) + " [ ] within each other");
    ++at_;
    const bool is_negated = next_is("^");
    if (is_negated) ++at_;
    std::vector<CharacterSet> operands(1);  // of &&
    for (bool is_first = true;; is_first = false) {
      if (at_ >= in_.size()) refuse("a [ that is not closed");
      if (next_is("]") && !is_first) break;
      if (next_is("&&")) {
        operands.emplace_back();
        at_ += 2;
      } else if (next_is("[:") && posix_bracket(operands.back())) {
        continue;
      } else if (next_is("[")) {
        operands.back().add(read_set(depth + 1));
        if (next_is("-")) {  // no range begins with a set
          operands.back().items += "\\-";
          ++at_;
        }
      } else {
        set_item(operands.back());
      }
    }
    ++at_;
    CharacterSet set = operands.back();
    if (operands.size() > 1) {
      std::string all;
      for (const CharacterSet& operand : operands) {
        if (operand.items.empty() && operand.others.empty()) refuse("an intersection, &&, with nothing");
        all += "(?=" + operand.pattern() + ")";
      }
      set = {"", {"(?:" + all + "(?s:.))"}};
    }
    set.is_negated = is_negated;
    return set;
  }

  // One character, escape or the hyphen of a range.
  void set_item(CharacterSet& set) {
    std::string item;
    out_.swap(item);
    const char escaped = next_is("\\") && at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (next_is("\\")) {
      escape(true);
    } else {
      if (next_is("]") || next_is("^")) out_ += '\\';
      do out_ += in_[at_++];
      while (at_ < in_.size() && (in_[at_] & 0xc0) == 0x80);
    }
    out_.swap(item);
    if (escaped == 'W' || escaped == 'H') {
      set.others.push_back(item);
    } else {
      set.items += item;
    }
    const bool is_class = escaped != '\0' && std::string_view("wWsSdDhHpP").find(escaped) != std::string_view::npos;
    if (is_class) hyphen_after_class(set);
  }

  // No range begins with a class: it is a hyphen at the end of a set, else a mistake.
  void hyphen_after_class(CharacterSet& set) {
    if (!next_is("-")) return;
    ++at_;
    if (!next_is("]") && !next_is("&&"))
      refuse("a range that begins with a class, as [\\w-z] (write \\- for a hyphen)");
    set.items += "\\-";
  }

  // [:alpha:] or [:^alpha:]; false: it is a set that begins with a colon.
  bool posix_bracket(CharacterSet& set) {
    std::string_view name = ahead(2);
    const size_t size = std::min(name.find_first_of(":]"), name.size());
    if (!name.substr(size).starts_with(":]")) return false;
    name = name.substr(0, size);
    const bool is_negated = name.starts_with('^');
    if (is_negated) name.remove_prefix(1);
    const auto* const found = std::find_if(std::begin(kPosixBrackets), std::end(kPosixBrackets),
                                           [&](const auto& known) { return known.first == name; });
    if (found == std::end(kPosixBrackets)) refuse("[:" + std::string(name) + ":]");
    set.add({found->second, {}, is_negated});
    at_ += 2 + size + 2;
    hyphen_after_class(set);
    return true;
  }

  const std::string& in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;               // in out_, where what a quantifier repeats begins
  std::vector<size_t> groups_;    // in out_, where open groups begin
  std::vector<size_t> repeated_;  // in out_, before which "(?:" is missing
};

}  // namespace

std::string pcre2_pattern(const std::string& oniguruma) {
  return PatternTranslator(oniguruma).translated();
}

}  // namespace levin::tokenizers
