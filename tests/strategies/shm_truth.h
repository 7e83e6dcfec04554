// The truth of a reduction: LibTorch's own arithmetic in the order of ranks, on what the ranks are known to contribute.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "forked_ranks.h"

namespace levin::test {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<at::Tensor>;

inline Group shm(ProcessRanks& ranks, const std::string& name = "test") {
  return ranks.group(name, "shm", at::kCPU);
}

/// What a rank contributes to call number `call`; bits that depend on the order of a sum.
inline at::Tensor part_of(int64_t rank, int64_t size, at::ScalarType type, int64_t call = 0) {
  const at::Tensor numbers = at::arange(size, at::kDouble).add_(static_cast<double>(3 * rank + 7 * call));
  if (type == at::kBool) return numbers.remainder(3).gt(static_cast<double>(rank % 2));
  if (at::isIntegralType(type, false)) return numbers.remainder(5).to(type);
  return numbers.mul(0.7).sin_().to(type);
}

/// The reduction of all ranks' parts in their order, by LibTorch's own arithmetic.
inline at::Tensor reduced(int64_t ranks, int64_t size, at::ScalarType type, c10d::ReduceOp::RedOpType op,
                          int64_t call = 0) {
  const bool is_short = type == at::kHalf || type == at::kBFloat16;
  const auto wide = is_short ? at::kFloat : type;
  at::Tensor result = part_of(0, size, type, call).to(wide);
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const at::Tensor part = part_of(rank, size, type, call).to(wide);
    if (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG)
      result = type == at::kBool ? result | part : result + part;
    if (op == c10d::ReduceOp::PRODUCT) result = type == at::kBool ? result & part : result * part;
    if (op == c10d::ReduceOp::MIN) result = at::minimum(result, part);
    if (op == c10d::ReduceOp::MAX) result = at::maximum(result, part);
  }
  if (op == c10d::ReduceOp::AVG) result = result / static_cast<double>(ranks);
  return result.to(type);
}

/// Adds a line to `wrong` unless both are bitwise identical.
inline void check(std::string& wrong, const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  if (at::equal(found, expected)) return;
  wrong += what + " of " + c10::toString(expected.scalar_type()) + " x " + std::to_string(expected.numel()) + "\n";
}

}  // namespace levin::test
