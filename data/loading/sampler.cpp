#include "levin/data/loading/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/random.h"

namespace levin {

namespace {

const at::TensorOptions kIndexType = at::TensorOptions().dtype(at::kLong);

at::Generator generator_of(uint64_t seed, int64_t epoch) {
  return at::detail::createCPUGenerator(mix_seed(seed, static_cast<uint64_t>(epoch)));
}

int64_t checked_size(int64_t size, const std::string& who) {
  if (size >= 0) return size;
  throw Error(who + ": the size must be >= 0, got " + std::to_string(size) + ".");
}

// Cuts the largest batch in two; false if none has two samples.
bool split_largest(IndexBatches& batches) {
  const auto largest = std::max_element(batches.begin(), batches.end(),
                                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (largest->size() < 2) return false;
  const auto middle = largest->begin() + static_cast<int64_t>(largest->size() + 1) / 2;
  std::vector<int64_t> second(middle, largest->end());
  largest->erase(middle, largest->end());
  batches.push_back(std::move(second));
  return true;
}

}  // namespace

SequentialSampler::SequentialSampler(int64_t size) : size_(checked_size(size, "SequentialSampler")) {}

at::Tensor SequentialSampler::order(uint64_t /*seed*/, int64_t /*epoch*/) const {
  return at::arange(size_, kIndexType);
}

RandomSampler::RandomSampler(int64_t size, RandomSamplerOptions options)
    : size_(checked_size(size, "RandomSampler")), options_(checked(options, "RandomSamplerOptions")) {}

int64_t RandomSampler::size() const {
  return options_.num_samples == -1 || size_ == 0 ? size_ : options_.num_samples;
}

at::Tensor RandomSampler::order(uint64_t seed, int64_t epoch) const {
  const at::Generator generator = generator_of(seed, epoch);
  if (options_.replacement && size_ > 0) return at::randint(0, size_, {size()}, generator, kIndexType);
  std::vector<at::Tensor> permutations = {at::randperm(size_, generator, kIndexType)};
  for (int64_t have = size_; have < size(); have += size_) {
    permutations.push_back(at::randperm(size_, generator, kIndexType));
  }
  return (permutations.size() == 1 ? permutations[0] : at::cat(permutations)).narrow(0, 0, size());
}

SubsetSampler::SubsetSampler(const at::Tensor& indices, bool shuffle) : shuffle_(shuffle) {
  if (!indices.defined() || indices.dim() != 1 || indices.scalar_type() != at::kLong) {
    throw Error("SubsetSampler: the indices must be a tensor (n) of int64.");
  }
  indices_ = indices.clone();
}

SubsetSampler::SubsetSampler(const std::vector<int64_t>& indices, bool shuffle)
    : indices_(at::tensor(indices, kIndexType)), shuffle_(shuffle) {}

at::Tensor SubsetSampler::order(uint64_t seed, int64_t epoch) const {
  if (!shuffle_) return indices_;
  return indices_.index_select(0, at::randperm(indices_.size(0), generator_of(seed, epoch), kIndexType));
}

int64_t count_share_of_batches(int64_t batches, int64_t rank, int64_t world_size, bool padded) {
  return padded ? (batches + world_size - 1) / world_size : (batches - rank + world_size - 1) / world_size;
}

IndexBatches share_of_batches(IndexBatches batches, int64_t rank, int64_t world_size, bool padded, bool may_split) {
  if (world_size == 1 || batches.empty()) return batches;
  const auto ranks = static_cast<size_t>(world_size);
  while (padded && may_split && batches.size() % ranks != 0 && split_largest(batches)) {
  }
  for (size_t i = 0; padded && batches.size() % ranks != 0; ++i) batches.push_back(batches[i]);
  IndexBatches share;
  for (size_t b = static_cast<size_t>(rank); b < batches.size(); b += ranks) share.push_back(std::move(batches[b]));
  return share;
}

}  // namespace levin
