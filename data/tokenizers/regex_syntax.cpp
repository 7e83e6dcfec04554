// Oniguruma's syntax in PCRE2's: what both mean alike stays, what they do not is rewritten, the rest is refused.
// https://github.com/kkos/oniguruma/blob/master/doc/RE and `man pcre2pattern`.
#include <cctype>
#include <vector>

#include "levin/core/error.h"
#include "levin/data/tokenizers/regex.h"

namespace levin::tokenizers {

namespace {

// With the six numbers of Latin-1 that Oniguruma counts as well.
constexpr const char* kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";

class PatternTranslator {
 public:
  explicit PatternTranslator(const std::string& pattern) : in_(pattern) {}

  std::string translated() {
    while (at_ < in_.size()) step();
    if (!groups_.empty()) refuse("a group that is not closed");
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("the pattern " + cut_text(in_) + " has " + what + ", which is not supported");
  }
  [[nodiscard]] bool next_is(const char* text) const {
    return in_.compare(at_, std::char_traits<char>::length(text), text) == 0;
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
      out_.insert(atom_, "(?:");
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
      case 'w': out_ += in_class ? kWordClass : "[" + std::string(kWordClass) + "]"; return;
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
        if (in_class) refuse("\\" + std::string(1, c) + " inside [ ]");
        out_ += c == 'W' ? "[^" + std::string(kWordClass) + "]" : "[^0-9a-fA-F]";
        return;
      case 'b':
      case 'B':
        if (in_class) break;
        return word_boundary(c == 'b');
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'R':
        if (!in_class) break;
        [[fallthrough]];
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse("\\" + std::string(1, c));
    }
    // Vertical tabulator in Oniguruma, any vertical space in PCRE2.
    out_ += c == 'v' ? std::string("\\x0b") : std::string("\\") + c;
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

  void character_class() {
    atom_ = out_.size();
    out_ += in_[at_++];
    if (next_is("^")) out_ += in_[at_++];
    for (bool is_first = true;; is_first = false) {
      if (at_ == in_.size()) refuse("a [ that is not closed");
      if (next_is("]") && !is_first) break;
      if (next_is("&&")) refuse("an intersection, &&");
      if (next_is("[")) refuse("a [ inside [ ]");
      if (next_is("\\")) {
        escape(true);
      } else {
        out_ += in_[at_++];
      }
    }
    out_ += in_[at_++];
  }

  const std::string& in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // in out_, where what a quantifier repeats begins
  std::vector<size_t> groups_;  // in out_, where open groups begin
};

}  // namespace

std::string pcre2_pattern(const std::string& oniguruma) {
  return PatternTranslator(oniguruma).translated();
}

}  // namespace levin::tokenizers
