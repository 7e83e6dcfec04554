// The process's exit, and threads that still run then. exit() destroys objects that a thread may be using: LibTorch's
// table of operators, libcrypto, the console.
#pragma once

#include <chrono>

namespace levin {

/// The time for which exit() waits for an ExitLock of another thread.
inline constexpr std::chrono::seconds kExitPatience(5);

/// From now on the exit of the process waits until no other thread owns an ExitLock, and locks that are made later own
/// nothing. Where threads keep theirs for longer than kExitPatience, the process ends at once with exit's status: what
/// was registered for the exit before is left out, and streams are flushed. Call it once the objects that the threads
/// use exist, because exit() destroys first what was made last; it may be called again.
void guard_exit();

/// A lock that delays the exit; may be nested on a thread. On the thread that has called exit() it always owns its
/// lock.
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
