#include "levin/data/loading/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include "levin/core/error.h"
#include "levin/core/seed.h"

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

}  // namespace levin
