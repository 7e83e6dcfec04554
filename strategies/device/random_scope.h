// Reproducible random numbers on several threads. Each GPU has a generator; on the CPU all threads draw from the same
// one, so the numbers that each gets would depend on thread timing.
//
//   const uint64_t seed = draw_seed();                       // on the thread that starts the others
//   const RandomScope random(mix_seed(seed, k));             // on thread k
#pragma once

#include <cstdint>
#include <functional>

#include "levin/core/random.h"

namespace levin {

/// Returns a number from the CPU's generator, or from the RandomScope it is called in. Checkpoints contain the
/// generator's state, so nothing else has to be saved.
[[nodiscard]] uint64_t draw_seed();

/// During its lifetime, operators that the calling thread runs on the CPU (dropout, at::rand, …) draw from a generator
/// of this thread that is seeded with `seed`; the process's generator is not affected. Threads take turns for the
/// duration of one such operator. Operators with an explicit generator, or on a GPU, are not affected.
class RandomScope {
 public:
  explicit RandomScope(uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  struct State;
  explicit RandomScope(const State& state);  // continues from a saved position
  static RandomMark mark();

  void* outer_;
  uint64_t callback_;
  std::function<RandomMark()> outer_mark_;
};

}  // namespace levin
