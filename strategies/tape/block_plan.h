// Places pieces of memory with known lifetimes in one block, so that pieces whose lifetimes overlap do not. Internal.
#pragma once

#include <cstddef>
#include <vector>

namespace levin {

struct MemoryPiece {
  size_t bytes = 0;
  size_t first = 0;  // the first moment it is in use, and the last
  size_t last = 0;
};

struct BlockPlan {
  std::vector<size_t> offsets = {};  // of each piece, multiples of 64
  size_t bytes = 0;                  // of the block
};

/// Greedy by size: the largest first, each at the lowest offset that is free during its life (Pisarchyk and Lee,
/// "Efficient Memory Management for Deep Neural Net Inference", 2020).
[[nodiscard]] BlockPlan plan_block(const std::vector<MemoryPiece>& pieces);

}  // namespace levin
