// Threads that run to the end of the process must not use what is destroyed while it exits (libcrypto, the console).
#pragma once

#include <shared_mutex>

namespace levin {

/// From now on the process's exit waits for those who hold a lock of before_exit(), and lets nobody else in. Call it
/// once whatever they use has been made; it may be called again.
void guard_exit();

/// Holds the exit up while it owns its lock; owns none once the exit has begun.
[[nodiscard]] std::shared_lock<std::shared_mutex> before_exit();

}  // namespace levin
