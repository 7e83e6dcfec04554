// What Replace and Split of a tokenizer.json search for: a literal string or a regular expression.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

/// A regular expression in Oniguruma's syntax, which Hugging Face's tokenizers use, except callouts:
/// https://github.com/kkos/oniguruma/blob/master/doc/RE. Immutable; threads may share it.
class Regex {
 public:
  /// Throws Error naming the pattern and what is wrong with it. Patterns above 64 KiB, and groups nested more than 250
  /// deep, are refused.
  explicit Regex(const std::string& pattern);

  struct Match {
    size_t begin, end;  // bytes
  };
  /// Finds the first match that begins at byte `from` or later; returns false if there is none. `text` is valid UTF-8.
  /// Throws DataError if the pattern backtracks more often, or needs more memory for it, than the limits in pattern.cpp
  /// allow, or if the call exceeds `budget`.
  [[nodiscard]] bool find(std::string_view text, size_t from, Match& match, Budget& budget) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// Calls use(begin, end) for every match in order; an empty match directly after another match is skipped.
/// `find(text, from, match)` works like Regex::find.
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

/// Returns text.find(what, from), which itself is quadratic if `what` is long and nearly matches everywhere.
[[nodiscard]] size_t find_literal(std::string_view text, std::string_view what, size_t from);

class Pattern {
 public:
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}

  /// Same as Regex::find.
  [[nodiscard]] bool find(std::string_view text, size_t from, Regex::Match& match, Budget& budget) const;
  /// Returns `text` with every match replaced by `content`. `first`: see NormalText. Throws DataError.
  [[nodiscard]] std::string replaced(std::string_view text, std::string_view content, Budget& budget,
                                     size_t& first) const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// Reads {"String": …}, {"Regex": …} or a string; notes mistakes in the node.
[[nodiscard]] Pattern make_pattern(const JsonNode& node);

}  // namespace levin::tokenizers
