// The run's seed, from which parts without their own seed derive theirs. Process-wide and thread-safe.
// The trainer sets it once, before anything is shuffled; nothing here touches LibTorch's global generators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace levin {

/// The run's seed; 0 until it is set.
[[nodiscard]] uint64_t default_seed();
void set_default_seed(uint64_t seed);
/// Whether it has been set.
[[nodiscard]] bool seed_is_set();

/// Mixes two numbers into a well-spread third (splitmix64's finaliser): neighbouring seeds, epochs and indices give
/// unrelated streams. Chain it to mix more: mix_seed(mix_seed(seed, epoch), index).
[[nodiscard]] uint64_t mix_seed(uint64_t seed, uint64_t value);

// A thread with its own random number generator registers it here, so that a computation repeated on another thread can
// draw the same numbers.

/// During the result's lifetime, the calling thread draws the numbers that were drawn after the mark.
using RandomMark = std::function<std::shared_ptr<void>()>;

/// Marks the position of the calling thread's generator; empty: it draws from the process's generators.
[[nodiscard]] RandomMark mark_thread_random();

/// Sets `make_mark` for the calling thread; empty: none. Returns the previous one.
std::function<RandomMark()> set_thread_random(std::function<RandomMark()> make_mark);

}  // namespace levin
