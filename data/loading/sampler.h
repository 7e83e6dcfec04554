// The order in which a pass visits samples: a function of (seed, epoch) and nothing else, so a run that stops anywhere
// continues with the same samples. Samplers keep no position and never touch LibTorch's global generators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// The interface of samplers. Every rank computes the order for all ranks, and its loader takes the rank's part.
class Sampler {
 public:
  static const char* registry_name() { return "sampler"; }
  virtual ~Sampler() = default;

  /// Returns the number of samples of one pass.
  [[nodiscard]] virtual int64_t size() const = 0;

  /// Returns the indices of one pass: (size) int64.
  [[nodiscard]] virtual at::Tensor order(uint64_t seed, int64_t epoch) const = 0;

  /// Returns true if every pass is 0, 1, 2, …: batches are then cut out of the data without gathering.
  [[nodiscard]] virtual bool is_sequential() const { return false; }

  /// Returns true if every pass visits the same samples the same number of times, in any order.
  [[nodiscard]] virtual bool repeats_its_samples() const { return is_sequential(); }
};

/// The order 0, 1, 2, … size - 1. Throws Error for a negative size.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool is_sequential() const override { return true; }

 private:
  int64_t size_;
};

/// Options of RandomSampler, by PyTorch's names.
struct RandomSamplerOptions {
  bool replacement = false;  // draw with replacement: some samples appear twice, some never
  int64_t num_samples = -1;  // indices of a pass; -1: as many as the data set has
  template <class = void>
  static auto fields() {
    using O = RandomSamplerOptions;
    return levin::fields(
        field("replacement", &O::replacement, "draw with replacement: some samples appear twice, some never"),
        field("num_samples", &O::num_samples, "indices of a pass; -1: as many as the data set has")
            .check([](int64_t n) { return n == -1 || n >= 1; }, "-1 or >= 1"));
  }
};

/// A new permutation of 0 … size - 1 for every (seed, epoch). Without replacement and with more samples than the data
/// set has, one permutation follows another, as in PyTorch. Throws Error for a negative size, ConfigError for invalid
/// options.
class RandomSampler final : public Sampler {
 public:
  using Options = RandomSamplerOptions;
  explicit RandomSampler(int64_t size, RandomSamplerOptions options = {});
  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool repeats_its_samples() const override { return !options_.replacement && size() == size_; }

 private:
  int64_t size_;
  RandomSamplerOptions options_;
};

/// The given indices, in their order, or permuted again for every (seed, epoch). Throws Error unless they are (n)
/// int64.
class SubsetSampler final : public Sampler {
 public:
  /// `indices`: (n) int64, copied.
  explicit SubsetSampler(const at::Tensor& indices, bool shuffle = false);
  explicit SubsetSampler(const std::vector<int64_t>& indices, bool shuffle = false);
  [[nodiscard]] int64_t size() const override { return indices_.size(0); }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool repeats_its_samples() const override { return true; }

 private:
  at::Tensor indices_;  // (n) int64
  bool shuffle_;
};

/// Batches of a pass, each a list of indices into the data set.
using IndexBatches = std::vector<std::vector<int64_t>>;

/// The interface of samplers that choose whole batches. Every rank computes the batches for all ranks, and its loader
/// takes the rank's part.
class BatchSampler {
 public:
  static const char* registry_name() { return "batch sampler"; }
  virtual ~BatchSampler() = default;

  /// Returns the number of batches of each pass; nullopt if it differs from pass to pass and is known when a pass
  /// begins.
  [[nodiscard]] virtual std::optional<int64_t> num_batches() const = 0;

  /// Returns the batches of one pass for all ranks together: rank r of n takes number r, r + n, r + 2 n, …
  [[nodiscard]] virtual IndexBatches batches(uint64_t seed, int64_t epoch) const = 0;

  /// Returns what a training pass does if its batches cannot be divided among the ranks. True: cuts the largest in two,
  /// so that each sample is visited as often as before. False, for batches that must stay whole: repeats the first
  /// ones.
  [[nodiscard]] virtual bool may_split() const { return false; }

  /// Returns the number of samples of a full batch; nullopt if it varies.
  [[nodiscard]] virtual std::optional<int64_t> batch_size() const { return std::nullopt; }
};

/// Returns the batches of `rank`. With `padded`, all ranks get the same number of batches: see BatchSampler::may_split.
[[nodiscard]] IndexBatches share_of_batches(IndexBatches batches, int64_t rank, int64_t world_size, bool padded,
                                            bool may_split);

/// Returns how many of `batches` batches share_of_batches() gives a rank.
[[nodiscard]] int64_t count_share_of_batches(int64_t batches, int64_t rank, int64_t world_size, bool padded);

}  // namespace levin
