// Finds differences between ranks that should be equal: each describes its state as lines of text, "NAME VALUE". The
// name ends at the first space; lines of the same name are compared, at any position.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace levin {

/// The first line of rank 0 that a rank does not have, otherwise the rank's first line that rank 0 does not have.
struct RankDifference {
  size_t rank = 0;
  std::string on_rank_zero = {};
  std::string on_rank = {};
};

/// Returns the first line in which the ranks' `texts`, in rank order, differ; unset if all are equal. A missing line
/// is reported as "nothing".
[[nodiscard]] std::optional<RankDifference> first_difference(const std::vector<std::string>& texts);

}  // namespace levin
