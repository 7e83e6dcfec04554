// The run's seed, from which parts without their own seed derive theirs. Process-wide and thread-safe.
// The trainer sets it once, before anything is shuffled; nothing here touches LibTorch's global generators.
#pragma once

#include <cstdint>

namespace levin {

/// The run's seed; 0 until it is set.
[[nodiscard]] uint64_t default_seed();
void set_default_seed(uint64_t seed);
/// Whether it has been set.
[[nodiscard]] bool seed_is_set();

/// Mixes two numbers into a well-spread third (splitmix64's finaliser): neighbouring seeds, epochs and indices give
/// unrelated streams. Chain it to mix more: mix_seed(mix_seed(seed, epoch), index).
[[nodiscard]] uint64_t mix_seed(uint64_t seed, uint64_t value);

}  // namespace levin
