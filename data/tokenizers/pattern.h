// What Replace and Split search for: a text or a regular expression.
#pragma once

#include <optional>
#include <string>

#include "levin/data/tokenizers/json_node.h"
#include "levin/data/tokenizers/regex.h"

namespace levin::tokenizers {

/// Throws DataError if a text of `before` bytes becomes 16 times as long, and a megabyte: a few replacements one after
/// another, each of which makes a text ten times as long, would take all memory.
void check_growth(size_t before, size_t after);

class Pattern {
 public:
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}

  /// As Regex::find.
  [[nodiscard]] bool find(std::string_view text, size_t from, Regex::Match& match) const {
    if (regex_) return regex_->find(text, from, match);
    const size_t begin = text.find(literal_, from);
    match = {begin, begin + literal_.size()};
    return begin != std::string_view::npos;
  }
  /// `text` with `content` for each match. Throws DataError as check_growth().
  [[nodiscard]] std::string replaced(std::string_view text, std::string_view content) const {
    std::string result;
    size_t end = 0;
    const auto find_next = [this](std::string_view in, size_t from, Regex::Match& match) {
      return find(in, from, match);
    };
    if (text.empty()) return result;
    for_each_match(text, find_next, [&](size_t begin, size_t match_end) {
      check_growth(text.size(), result.size() + content.size());
      result.append(text.substr(end, begin - end)).append(content);
      end = match_end;
    });
    return result.append(text.substr(end));
  }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// {"String": …} or {"Regex": …}, or a text. What cannot be used is noted in the node.
[[nodiscard]] Pattern make_pattern(const JsonNode& node);

}  // namespace levin::tokenizers
