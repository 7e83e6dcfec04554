// Random numbers of several threads that are the same in every run. A GPU has a generator of its own; on the CPU all
// threads draw from one, so what each would get depends on who comes first.
//
//   const uint64_t seed = draw_seed();                       // on the thread that starts the others
//   const RandomScope random(mix_seed(seed, k));             // on thread k
#pragma once

#include <cstdint>
#include <functional>

#include "levin/core/thread_random.h"

namespace levin {

/// A number from the CPU's generator, which the random state of a checkpoint holds: no state besides it. Inside a
/// RandomScope it comes from the scope.
[[nodiscard]] uint64_t draw_seed();

/// While it lives, operators that the calling thread runs on the CPU (dropout, at::rand, …) draw from a generator of
/// this thread that begins at `seed`; the process's is untouched by them. Threads that do so take turns for the time of
/// one such operator. What a thread draws from a generator it names, or runs on a GPU, is not changed.
class RandomScope {
 public:
  explicit RandomScope(uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  struct State;
  explicit RandomScope(const State& state);  // continues where a thread was
  static RandomMark mark();

  void* outer_;
  uint64_t callback_;
  std::function<RandomMark()> outer_mark_;
};

}  // namespace levin
