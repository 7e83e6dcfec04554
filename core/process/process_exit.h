// The process's exit, and threads that still run then. exit() destroys objects that a thread may be using: LibTorch's
// table of operators, libcrypto, the console.
#pragma once

#include <chrono>

namespace levin {

/// The time for which exit() waits for locks of before_exit().
inline constexpr std::chrono::seconds kExitPatience(5);

/// From now on the exit of the process waits until no other thread has a lock of before_exit(), and later calls get
/// none. Where they keep theirs for longer than kExitPatience, the process ends at once with exit's status: what was
/// registered for the exit before is left out, and streams are flushed. Call it once the objects that the threads use
/// exist, because exit() destroys first what was made last; it may be called again.
void guard_exit();

/// A lock that delays the exit. The thread that has called exit() always gets one.
class ExitLock {
 public:
  ExitLock();
  ~ExitLock();
  ExitLock(const ExitLock&) = delete;
  ExitLock& operator=(const ExitLock&) = delete;

  /// Returns false once the exit has begun.
  [[nodiscard]] bool owns_lock() const { return owns_; }

 private:
  bool owns_;
};

/// Delays the exit while the returned lock is owned; may be nested on a thread.
[[nodiscard]] inline ExitLock before_exit() {
  return {};
}

/// A call of user code into Levin, which uses LibTorch. Delays the exit during its lifetime, guards it again for the
/// objects that the call makes, and where the exit has begun, holds the thread until the process ends.
class CallBeforeExit {
 public:
  CallBeforeExit();
  ~CallBeforeExit();
  CallBeforeExit(const CallBeforeExit&) = delete;
  CallBeforeExit& operator=(const CallBeforeExit&) = delete;

 private:
  ExitLock lock_;
};

}  // namespace levin
