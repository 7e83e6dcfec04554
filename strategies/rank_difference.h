// How ranks that should be the same are told apart: each says what it has as lines of text.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace levin {

/// The first line in which a rank differs from rank 0.
struct RankDifference {
  size_t rank = 0;
  std::string on_rank_zero = {};
  std::string on_rank = {};
};

/// `texts`: every rank's, rank by rank. Unset: all are the same. A line that is missing reads "nothing".
[[nodiscard]] std::optional<RankDifference> first_difference(const std::vector<std::string>& texts);

}  // namespace levin
