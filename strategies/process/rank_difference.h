// How ranks that should be the same are told apart: each says what it has as lines of text, "NAME VALUE". The name goes
// up to the first space; a line is held against that of the same name, wherever it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace levin {

/// The first line of rank 0 that a rank does not have, else the first of the rank's that rank 0 does not have.
struct RankDifference {
  size_t rank = 0;
  std::string on_rank_zero = {};
  std::string on_rank = {};
};

/// `texts`: every rank's, rank by rank. Unset: all are the same. A line that is missing reads "nothing".
[[nodiscard]] std::optional<RankDifference> first_difference(const std::vector<std::string>& texts);

}  // namespace levin
