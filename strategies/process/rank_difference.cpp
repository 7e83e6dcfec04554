#include "levin/strategies/process/rank_difference.h"

#include <algorithm>
#include <unordered_set>

#include "levin/core/options/error.h"

namespace levin {

namespace {

using Lines = std::vector<std::string>;

constexpr const char* kNothing = "nothing";

std::string line_name(const std::string& line) {
  return line.substr(0, line.find(' '));
}

// The first of `lines` that `others` do not have; null: they have all.
const std::string* first_missing(const Lines& lines, const std::unordered_set<std::string>& others) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return !others.contains(line); });
  return found == lines.end() ? nullptr : &*found;
}

// The line with the name of `line` that `lines` have and `others` do not.
std::string counterpart(const std::string& line, const Lines& lines, const std::unordered_set<std::string>& others) {
  const std::string name = line_name(line);
  for (const auto& one : lines) {
    if (line_name(one) == name && !others.contains(one)) return one;
  }
  return kNothing;
}

RankDifference difference(size_t rank, const Lines& zero, const Lines& other) {
  const std::unordered_set<std::string> in_zero(zero.begin(), zero.end());
  const std::unordered_set<std::string> in_other(other.begin(), other.end());
  if (const auto* line = first_missing(zero, in_other)) return {rank, *line, counterpart(*line, other, in_zero)};
  if (const auto* line = first_missing(other, in_zero)) return {rank, kNothing, *line};
  // The same lines in a different order, or a duplicate of one of them.
  const auto [a, b] = std::mismatch(zero.begin(), zero.end(), other.begin(), other.end());
  return {rank, a == zero.end() ? kNothing : *a, b == other.end() ? kNothing : *b};
}

}  // namespace

std::optional<RankDifference> first_difference(const std::vector<std::string>& texts) {
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) return difference(rank, split(texts[0], '\n'), split(texts[rank], '\n'));
  }
  return std::nullopt;
}

}  // namespace levin
