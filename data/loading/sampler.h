// The order in which a pass visits samples: a function of (seed, epoch) and nothing else, so a run that stops anywhere
// continues with the same samples. Samplers keep no position and never touch LibTorch's global generators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/core/fields.h"

namespace levin {

class Sampler {
 public:
  static const char* registry_name() { return "sampler"; }
  virtual ~Sampler() = default;

  /// Samples of one pass.
  [[nodiscard]] virtual int64_t size() const = 0;

  /// The indices of one pass: (size) int64.
  [[nodiscard]] virtual at::Tensor order(uint64_t seed, int64_t epoch) const = 0;

  /// True if every pass is 0, 1, 2, …: batches are then cut out of the data without gathering.
  [[nodiscard]] virtual bool is_sequential() const { return false; }

  /// True if every pass visits the same samples, equally often, in whatever order.
  [[nodiscard]] virtual bool repeats_its_samples() const { return is_sequential(); }
};

/// 0, 1, 2, … size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;
  [[nodiscard]] bool is_sequential() const override { return true; }

 private:
  int64_t size_;
};

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
/// set has, one permutation follows another, as in PyTorch.
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

/// The given indices: in their order, or permuted again for every (seed, epoch).
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

}  // namespace levin
