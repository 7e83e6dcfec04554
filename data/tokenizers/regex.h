// The regular expressions of tokenizer.json: written for Oniguruma, matched by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "levin/data/tokenizers/budget.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class Regex {
 public:
  /// Throws Error that says what in the pattern cannot be used.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin, end;
  };
  /// The first match that begins at `from` or later; false: none. `text` is valid UTF-8. Throws DataError if the
  /// pattern needs more backtracking, or memory for it, than it is given, or the call more time than `budget`.
  [[nodiscard]] bool find(std::string_view text, size_t from, Match& match, Budget& budget) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// Calls use(begin, end) for all matches, one after another: an empty match directly after a match is left out.
/// `find(text, from, match)`: as Regex::find.
template <class Find, class Use>
void for_each_match(std::string_view text, const Find& find, Use use) {
  size_t from = 0, last_end = std::string_view::npos;
  Regex::Match match{};
  while (from <= text.size() && find(text, from, match)) {
    if (match.begin == match.end && match.end == last_end) {
      ++from;
      while (from < text.size() && (text[from] & 0xc0) == 0x80) ++from;
      continue;
    }
    use(match.begin, match.end);
    from = last_end = match.end;
  }
}

/// A pattern of Oniguruma in PCRE2's syntax. Throws Error naming what has no equivalent.
[[nodiscard]] std::string pcre2_pattern(const std::string& oniguruma);

}  // namespace levin::tokenizers
