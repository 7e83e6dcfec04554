// Random numbers for augmentation that do not depend on the thread that fetches a sample.
//
//   Batch get(int64_t i) const override { return {images_[i] + 0.1 * torch::randn({28, 28}, sample_generator())}; }
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace levin {

/// This thread's generator: within a data set's get(), seeded from (seed, epoch, index of the sample); within
/// get_batch() and get_range(), from (seed, epoch, number of the batch). Elsewhere from the run's seed.
[[nodiscard]] at::Generator& sample_generator();

/// For loaders: seeds this thread's sample_generator() with `seed` at its next use.
void seed_sample_generator(uint64_t seed);

}  // namespace levin
