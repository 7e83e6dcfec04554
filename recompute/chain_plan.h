// Chooses the blocks of a chain to recompute so that a step stays below a memory limit and takes the least time.
//
// The best choice is found by dynamic programming over the sequence of blocks, as Kusumoto et al. 2019 do over graphs
// ("A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient Backpropagation", arXiv:1905.11722). A
// choice for blocks 0 … i-1 affects the rest only by the bytes it keeps for backward and by its time: of two choices
// that keep as much, the faster one is followed, and of two that take as long, the smaller one. The memory of a block
// or segment is exactly what predict_memory returns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/recompute/chain_cost.h"

namespace levin {

/// The segments whose step takes the least time with a peak of at most `budget` bytes; unset if there are none. Best
/// among all choices of segments, unless more than 512 choices at one block each have less bytes or less time than the
/// others: then 512 of them are followed, the smallest one among them.
[[nodiscard]] std::optional<Segments> best_segments(const ChainCost& cost, int64_t budget);

/// The smallest possible peak, in bytes.
[[nodiscard]] int64_t least_peak(const ChainCost& cost);

/// Every block is a segment, except fixed ones; a block that changes its input in place is in the segment of the block
/// before.
[[nodiscard]] Segments each_block(const ChainCost& cost);

/// Each chain of n blocks in √n segments of equal length, the last of which is not computed again (Chen et al. 2016,
/// section 4.1); as recompute: {segments} cuts them.
[[nodiscard]] Segments square_root_segments(const ChainCost& cost);

/// The largest batch whose peak is at most `budget`; 0: not even one sample. By two measured sizes, see at_batch.
[[nodiscard]] int64_t largest_batch(const ChainCost& one, const ChainCost& other, const Segments& segments,
                                    int64_t budget);

/// The memory limit of a plan.
struct MemoryBudget {
  int64_t bytes = 0;
  bool is_free_memory = false;  // 9/10 of the device's free memory, rather than a given number
};

/// Returns the message for a module without blocks.
inline constexpr const char* kNoBlocks =
    "The module has no blocks that could be computed again: call its submodules through levin::call or "
    "levin::call_chain, or put them into a torch::nn::Sequential.";

/// Returns the message for a budget below least_peak, with remedies.
[[nodiscard]] std::string cannot_meet(const ChainCost& one, const ChainCost& other, MemoryBudget budget);

/// Returns the segments as TrainerOptions.recompute.modules names them: "h.0", "h.2..h.5".
[[nodiscard]] std::vector<std::string> module_ranges(const ChainCost& cost, const Segments& segments);

}  // namespace levin
