// What Replace and Split search for: a text or a regular expression.
#pragma once

#include <optional>
#include <string>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"
#include "levin/data/tokenizers/regex.h"

namespace levin::tokenizers {

/// text.find(what, from), which is quadratic for a long text and a long `what` that nearly match everywhere.
[[nodiscard]] size_t find_literal(std::string_view text, std::string_view what, size_t from);

class Pattern {
 public:
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}

  /// As Regex::find.
  [[nodiscard]] bool find(std::string_view text, size_t from, Regex::Match& match, Budget& budget) const;
  /// `text` with `content` for each match. `first`: see NormalText. Throws DataError.
  [[nodiscard]] std::string replaced(std::string_view text, std::string_view content, Budget& budget,
                                     size_t& first) const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// {"String": …} or {"Regex": …}, or a text. What cannot be used is noted in the node.
[[nodiscard]] Pattern make_pattern(const JsonNode& node);

}  // namespace levin::tokenizers
