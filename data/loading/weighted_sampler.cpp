#include "levin/data/loading/weighted_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/multinomial.h>

#include <string>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/loading/stratified.h"

namespace levin {

namespace {

constexpr int64_t kMaxCategories = int64_t{1} << 24;  // of at::multinomial

at::Tensor checked_weights(const at::Tensor& weights) {
  const std::string who = "WeightedRandomSampler: ";
  if (!weights.defined() || weights.dim() != 1 || weights.numel() == 0) {
    throw ConfigError(who + "the weights must be a tensor (n), one number for each sample.");
  }
  if (weights.numel() > kMaxCategories) {
    throw ConfigError(who + "got " + count_of(weights.numel(), "weight") +
                      "; multinomial draws from 2^24 at most. Divide the data set.");
  }
  const at::Tensor own = weights.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (!at::isfinite(own).all().item<bool>() || own.min().item<double>() < 0 || own.max().item<double>() == 0) {
    throw ConfigError(who + "the weights must be finite, >= 0 and not all 0, got " +
                      number_text(own.min().item<double>()) + " to " + number_text(own.max().item<double>()) + ".");
  }
  return own;
}

}  // namespace

WeightedRandomSampler::WeightedRandomSampler(const at::Tensor& weights, int64_t num_samples, bool replacement)
    : weights_(checked_weights(weights)), num_samples_(num_samples), replacement_(replacement) {
  if (num_samples < 1) {
    throw ConfigError("WeightedRandomSampler: num_samples must be >= 1, got " + std::to_string(num_samples) + ".");
  }
  const auto drawable = at::count_nonzero(weights_).item<int64_t>();
  if (replacement || num_samples <= drawable) return;
  throw ConfigError("WeightedRandomSampler: cannot draw " + count_of(num_samples, "sample") + " without replacement: " +
                    std::to_string(drawable) + " have a weight above 0. Draw fewer, or with replacement.");
}

at::Tensor WeightedRandomSampler::order(uint64_t seed, int64_t epoch) const {
  const at::Generator generator = at::detail::createCPUGenerator(mix_seed(seed, static_cast<uint64_t>(epoch)));
  return at::multinomial(weights_, num_samples_, replacement_, generator);
}

at::Tensor balanced_weights(const at::Tensor& labels) {
  check_labels(labels);
  return at::bincount(labels).to(at::kDouble).reciprocal().index_select(0, labels);
}

}  // namespace levin
