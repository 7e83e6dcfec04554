#include "levin/data/columns/group_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randperm.h>

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/core/random.h"

namespace levin {

GroupSampler::GroupSampler(const std::vector<int64_t>& group_rows, const at::Tensor& rows, int64_t window_rows,
                           bool shuffle)
    : window_rows_(window_rows), shuffle_(shuffle) {
  if (!rows.defined() || rows.dim() != 1 || rows.scalar_type() != at::kLong) {
    throw Error("GroupSampler: the rows must be a tensor (n) of int64.");
  }
  rows_ = rows.contiguous();
  const auto* row = rows_.const_data_ptr<int64_t>();
  const auto* last = row + rows_.numel();
  if (!std::is_sorted(row, last)) throw Error("GroupSampler: the rows must be increasing.");
  int64_t end_of_group = 0;
  const auto* from = row;
  for (const int64_t count : group_rows) {
    end_of_group += count;
    const auto* end = std::lower_bound(from, last, end_of_group);
    if (end != from) parts_.emplace_back(from - row, end - from);
    from = end;
  }
  if (from != last || (row != last && *row < 0)) {
    throw Error("GroupSampler: the rows must be from 0 to " + std::to_string(end_of_group - 1) + ".");
  }
}

at::Tensor GroupSampler::order(uint64_t seed, int64_t epoch) const {
  if (!shuffle_) return rows_;
  const auto type = at::TensorOptions().dtype(at::kLong);
  const at::Generator generator = at::detail::createCPUGenerator(mix_seed(seed, static_cast<uint64_t>(epoch)));
  const at::Tensor groups = at::randperm(std::ssize(parts_), generator, type);
  std::vector<at::Tensor> window, windows;
  int64_t rows = 0;
  for (int64_t i = 0; i < groups.numel(); ++i) {
    const auto [start, count] = parts_[static_cast<size_t>(groups.const_data_ptr<int64_t>()[i])];
    window.push_back(rows_.narrow(0, start, count));
    rows += count;
    if (rows < window_rows_ && i + 1 < groups.numel()) continue;
    windows.push_back(at::cat(window).index_select(0, at::randperm(rows, generator, type)));
    window.clear();
    rows = 0;
  }
  return windows.empty() ? rows_ : at::cat(windows);
}

}  // namespace levin
