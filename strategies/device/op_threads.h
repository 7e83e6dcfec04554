// How many threads LibTorch's operators use on the calling thread alone. Several threads that compute at once must
// share the cores: an operator that takes all of them on each would make every one wait for the others.
#pragma once

#include <cstddef>

namespace levin {

/// What each of `parts` threads that compute at once may use of the calling thread's number: at least 1.
[[nodiscard]] int op_threads_share(size_t parts);

/// While it lives, operators that the calling thread runs on the CPU use `count` threads.
class OpThreads {
 public:
  explicit OpThreads(int count);
  ~OpThreads();
  OpThreads(const OpThreads&) = delete;
  OpThreads& operator=(const OpThreads&) = delete;

 private:
  int outer_;      // OpenMP's number
  int outer_mkl_;  // MKL's own; 0: it follows OpenMP's
};

}  // namespace levin
