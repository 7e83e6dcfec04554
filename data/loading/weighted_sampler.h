// Samples drawn by weight, for classes or sources of which some should be seen more often than the data holds them.
//
//   auto sampler = std::make_shared<levin::WeightedRandomSampler>(levin::balanced_weights(labels), labels.size(0));
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "levin/data/loading/sampler.h"

namespace levin {

/// `num_samples` draws of a pass, sample i with probability proportional to weights[i]; without replacement each sample
/// at most once. PyTorch's sampler of that name: with a generator of the same seed the same indices.
class WeightedRandomSampler final : public Sampler {
 public:
  /// `weights`: (n), none below 0, not all 0, copied. Throws ConfigError otherwise, for more than 2^24 weights, which
  /// multinomial cannot draw from, and if fewer weights than num_samples are above 0 without replacement.
  WeightedRandomSampler(const at::Tensor& weights, int64_t num_samples, bool replacement = true);

  [[nodiscard]] int64_t size() const override { return num_samples_; }
  [[nodiscard]] at::Tensor order(uint64_t seed, int64_t epoch) const override;

 private:
  at::Tensor weights_;  // (n) float64
  int64_t num_samples_;
  bool replacement_;
};

/// Weights with which each class is drawn equally often: 1 / (samples of its class). `labels`: (n) int64, the class of
/// each sample, from 0 on; returns (n) float64. Throws DataError for other labels.
[[nodiscard]] at::Tensor balanced_weights(const at::Tensor& labels);

}  // namespace levin
