// One long sequence of tokens as samples for a language model: blocks of it.
//
//   auto blocks = std::make_shared<levin::TokenBlocks>(tokens, 128);
//   levin::DataLoader loader(blocks, {.batch_size = 16}, std::make_shared<levin::BlockSampler>(*blocks, true));
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "levin/data/loading/dataset.h"
#include "levin/data/loading/sampler.h"

namespace levin {

/// All blocks of a sequence of tokens. Sample i: x, the tokens i … i + block_size - 1, and y, the tokens one position
/// later: (block_size) int64 both. A batch is one tensor (batch, block_size + 1) that x and y are views of.
class TokenBlocks final : public Dataset {
 public:
  /// `tokens`: (n) uint8 or int32. Throws DataError if there are fewer than block_size + 1.
  TokenBlocks(const at::Tensor& tokens, int64_t block_size);

  [[nodiscard]] int64_t size() const override { return windows_.size(0); }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;
  [[nodiscard]] Batch get_range(int64_t first, int64_t count) const override;

  [[nodiscard]] int64_t block_size() const { return windows_.size(1) - 1; }

 private:
  [[nodiscard]] Batch split(const at::Tensor& blocks) const;

  at::Tensor windows_;  // (n - block_size, block_size + 1): a view of the tokens, each row one token further
};

/// An order of blocks that follow each other without overlap, so that a pass sees nearly every token once. Shuffled: in
/// a new order, starting at a different token, for every (seed, epoch); else in order from the first token. The
/// remainder that does not fill a block is left out.
class BlockSampler final : public Sampler {
 public:
  BlockSampler(const TokenBlocks& blocks, bool shuffle);
  /// Visits `num_tokens` tokens, more than block_size, whose sample i begins at token i.
  BlockSampler(int64_t num_tokens, int64_t block_size, bool shuffle);
  [[nodiscard]] int64_t size() const override { return count_; }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;

 private:
  int64_t block_size_;
  int64_t count_;        // blocks of a pass
  int64_t free_tokens_;  // by which a pass may start later
  bool shuffle_;
};

}  // namespace levin
