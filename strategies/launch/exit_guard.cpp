#include "levin/strategies/launch/exit_guard.h"

#include <cstdlib>
#include <mutex>

namespace levin {

namespace {

struct ProcessExit {
  std::shared_mutex mutex;
  bool has_begun = false;
};

// Never destroyed: threads may use it at any time.
ProcessExit& process_exit() {
  static auto* const state = new ProcessExit;
  return *state;
}

}  // namespace

void guard_exit() {
  (void)process_exit();
  std::atexit([] {
    const std::unique_lock lock(process_exit().mutex);
    process_exit().has_begun = true;
  });
}

std::shared_lock<std::shared_mutex> before_exit() {
  std::shared_lock lock(process_exit().mutex);
  if (process_exit().has_begun) lock.unlock();
  return lock;
}

}  // namespace levin
