#include "levin/strategies/rank_difference.h"

#include <algorithm>

namespace levin {

namespace {

std::string line_at(const std::string& text, size_t start) {
  const std::string line = start < text.size() ? text.substr(start, text.find('\n', start) - start) : "";
  return line.empty() ? "nothing" : line;
}

}  // namespace

std::optional<RankDifference> first_difference(const std::vector<std::string>& texts) {
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const std::string& zero = texts[0];
    const std::string& other = texts[rank];
    if (other == zero) continue;
    size_t line = 0;
    for (size_t k = 0; k < std::min(zero.size(), other.size()) && zero[k] == other[k]; ++k) {
      if (zero[k] == '\n') line = k + 1;
    }
    return RankDifference{rank, line_at(zero, line), line_at(other, line)};
  }
  return std::nullopt;
}

}  // namespace levin
