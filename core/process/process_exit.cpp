#include "levin/core/process/process_exit.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace levin {

namespace {

struct ProcessExit {
  std::mutex mutex = {};
  std::condition_variable unlocked = {};
  int threads = 0;  // that own locks
  bool has_begun = false;
  std::thread::id exiting = {};
};

// Never destroyed: threads may use it at any time.
ProcessExit& process_exit() {
  static auto* const state = new ProcessExit;
  return *state;
}

thread_local int locks_here = 0;  // that this thread owns

void begin_exit(int status) {
  ProcessExit& state = process_exit();
  std::unique_lock lock(state.mutex);
  if (state.has_begun) return;
  state.has_begun = true;
  state.exiting = std::this_thread::get_id();
  const int own = locks_here > 0 ? 1 : 0;  // exit() was called inside of a call
  if (state.unlocked.wait_for(lock, kExitPatience, [&] { return state.threads <= own; })) return;
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

void guard_exit() {
  (void)process_exit();
#ifdef __GLIBC__
  (void)::on_exit([](int status, void*) { begin_exit(status); }, nullptr);
#else
  std::atexit([] { begin_exit(EXIT_FAILURE); });  // the status is not known
#endif
}

ExitLock::ExitLock() {
  ProcessExit& state = process_exit();
  const std::lock_guard lock(state.mutex);
  owns_ = locks_here > 0 || !state.has_begun || state.exiting == std::this_thread::get_id();
  if (owns_ && locks_here++ == 0) ++state.threads;
}

ExitLock::~ExitLock() {
  if (!owns_ || --locks_here > 0) return;
  ProcessExit& state = process_exit();
  const std::lock_guard lock(state.mutex);
  --state.threads;
  if (state.has_begun) state.unlocked.notify_all();
}

CallBeforeExit::CallBeforeExit() {
  while (!lock_.owns_lock()) ::pause();
}

// Objects with static storage duration are made by the first calls, and hardly any by later ones.
CallBeforeExit::~CallBeforeExit() {
  static std::atomic<uint64_t> calls = 0;
  const uint64_t number = ++calls;
  if (number <= 32 || std::has_single_bit(number)) guard_exit();
}

}  // namespace levin
