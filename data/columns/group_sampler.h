// The order of rows that lie in groups, such as the row groups of a Parquet file, of which only a few are in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/data/loading/sampler.h"

namespace levin {

/// Some rows of groups. With `shuffle`, every (seed, epoch) has another permutation of the groups; consecutive groups
/// make up a window until it has `window_rows` rows, and the rows of a window are shuffled. So a pass reads each group
/// once, and needs the groups of one window, or of two where a window ends. Throws Error unless `rows` are (n) int64,
/// increasing, and within the groups.
class GroupSampler final : public Sampler {
 public:
  /// `group_rows`: the number of rows of each group.
  GroupSampler(const std::vector<int64_t>& group_rows, const at::Tensor& rows, int64_t window_rows, bool shuffle);

  [[nodiscard]] int64_t size() const override { return rows_.size(0); }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool repeats_its_samples() const override { return true; }

 private:
  at::Tensor rows_;                                 // (n) int64
  std::vector<std::pair<int64_t, int64_t>> parts_;  // of `rows_`: start and count of each group that has any
  int64_t window_rows_;
  bool shuffle_;
};

}  // namespace levin
