#include "levin/strategies/tape/block_plan.h"

#include <algorithm>
#include <numeric>

namespace levin {

namespace {

constexpr size_t kAlignment = 64;  // of LibTorch's own allocations

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool overlap(const MemoryPiece& one, const MemoryPiece& other) {
  return one.first <= other.last && other.first <= one.last;
}

}  // namespace

BlockPlan plan_block(const std::vector<MemoryPiece>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  BlockPlan plan{.offsets = std::vector<size_t>(pieces.size())};
  std::vector<size_t> placed;  // by offset
  for (const size_t index : order) {
    const MemoryPiece& piece = pieces[index];
    size_t offset = 0;
    for (const size_t other : placed) {
      if (!overlap(piece, pieces[other])) continue;
      if (offset + aligned(piece.bytes) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(pieces[other].bytes));
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(piece.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  index);
  }
  return plan;
}

}  // namespace levin
