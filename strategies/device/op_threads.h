// The number of threads that LibTorch's operators use when called on this thread. Threads that compute at the same time
// must share the cores: if each thread's operators used all cores, the threads would wait for each other.
#pragma once

#include <cstddef>

namespace levin {

/// The share of the calling thread's count for each of `parts` threads that compute at the same time: at least 1.
[[nodiscard]] int op_threads_share(size_t parts);

/// During its lifetime, operators that the calling thread runs on the CPU use `count` threads.
class OpThreads {
 public:
  explicit OpThreads(int count);
  ~OpThreads();
  OpThreads(const OpThreads&) = delete;
  OpThreads& operator=(const OpThreads&) = delete;

 private:
  int outer_;      // OpenMP's count before
  int outer_mkl_;  // MKL's; 0: it follows OpenMP's
};

}  // namespace levin
