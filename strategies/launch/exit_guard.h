// Threads that run to the end of the process must not use objects that are destroyed during exit (libcrypto, the
// console).
#pragma once

#include <shared_mutex>

namespace levin {

/// From now on the process's exit waits until no thread has a lock of before_exit(), and later calls get none. Call it
/// once the objects that the threads use exist; it may be called again.
void guard_exit();

/// Delays the exit while the returned lock is owned; it owns nothing once the exit has begun.
[[nodiscard]] std::shared_lock<std::shared_mutex> before_exit();

}  // namespace levin
