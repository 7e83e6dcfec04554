// A system that gives no more threads, which cannot be had otherwise: replaces libc's pthread_create for the program
// and its libraries. One file of a program includes it.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <limits>

namespace levin::test {

inline std::atomic<int> threads_left = std::numeric_limits<int>::max();

/// Lets this many threads start during its lifetime.
class RefusedThreads {
 public:
  explicit RefusedThreads(int left = 0) { threads_left = left; }
  ~RefusedThreads() { threads_left = std::numeric_limits<int>::max(); }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;
};

}  // namespace levin::test

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return levin::test::threads_left-- <= 0 ? EAGAIN : real(thread, attributes, start, argument);
}
