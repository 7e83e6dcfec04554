#include "levin/data/text/text_blocks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/random.h"

namespace levin {

namespace {

at::Tensor windows_of(const at::Tensor& tokens, int64_t block_size) {
  if (!tokens.defined() || tokens.dim() != 1 || block_size < 1 || tokens.size(0) <= block_size) {
    throw DataError("TokenBlocks: expected a row of at least " + count_of(block_size + 1, "token") +
                    " (a block and the token after it), got " + std::to_string(tokens.defined() ? tokens.numel() : 0) +
                    ". Give more text or a smaller block_size.");
  }
  return tokens.unfold(0, block_size + 1, 1);
}

const BatchNames& block_names() {
  static const BatchNames names{"input_ids", "labels"};
  return names;
}

}  // namespace

TokenBlocks::TokenBlocks(const at::Tensor& tokens, int64_t block_size) : windows_(windows_of(tokens, block_size)) {}

Batch TokenBlocks::split(const at::Tensor& blocks) const {
  const at::Tensor wide = blocks.to(at::kLong);  // (…, block_size + 1)
  return {{wide.narrow(-1, 0, block_size()), wide.narrow(-1, 1, block_size())}, block_names()};
}

Batch TokenBlocks::get(int64_t index) const {
  return split(windows_.select(0, index));
}

Batch TokenBlocks::get_batch(const at::Tensor& indices) const {
  return split(at::index_select(windows_, 0, indices));
}

Batch TokenBlocks::get_range(int64_t first, int64_t count) const {
  return split(windows_.narrow(0, first, count));
}

BlockSampler::BlockSampler(const TokenBlocks& blocks, bool shuffle)
    : BlockSampler(blocks.size() + blocks.block_size(), blocks.block_size(), shuffle) {}

// With n + 1 tokens there are n / block_size blocks at most; one fewer leaves room to start anywhere in the first.
BlockSampler::BlockSampler(int64_t num_tokens, int64_t block_size, bool shuffle)
    : block_size_(block_size), shuffle_(shuffle) {
  const int64_t predictable = num_tokens - 1;  // tokens that follow another
  const int64_t most = predictable / block_size_;
  count_ = shuffle ? std::max<int64_t>(1, (predictable - block_size_ + 1) / block_size_) : most;
  free_tokens_ = std::min(predictable - count_ * block_size_, block_size_ - 1);
}

at::Tensor BlockSampler::order(uint64_t seed, int64_t epoch) const {
  if (!shuffle_) return at::arange(0, count_ * block_size_, block_size_, at::TensorOptions().dtype(at::kLong));
  at::Generator generator = at::detail::createCPUGenerator(mix_seed(seed, static_cast<uint64_t>(epoch)));
  const auto start = at::randint(free_tokens_ + 1, {}, generator, at::TensorOptions().dtype(at::kLong));
  return at::randperm(count_, generator, at::TensorOptions().dtype(at::kLong)).mul_(block_size_).add_(start);
}

}  // namespace levin
