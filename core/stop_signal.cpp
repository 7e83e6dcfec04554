#include "levin/core/stop_signal.h"

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

namespace levin {

namespace {

constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

std::mutex scopes_mutex;
int scopes = 0;
std::array<bool, kSignals.size()> installed{};

extern "C" void note_stop_signal(int signal_number) {
  int none = 0;
  const bool first = received.compare_exchange_strong(none, signal_number);
  if (first || signal_number != SIGINT) return;
  // Somebody presses Ctrl-C again: the default action ends the process once the handler returns.
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace

StopSignalScope::StopSignalScope() {
  const std::lock_guard lock(scopes_mutex);
  if (scopes++ > 0) return;
  received = 0;
  for (size_t k = 0; k < kSignals.size(); ++k) {
    struct sigaction current {};
    installed[k] = sigaction(kSignals[k], nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
                   current.sa_handler == SIG_DFL;
    if (!installed[k]) continue;
    struct sigaction action {};
    action.sa_handler = note_stop_signal;
    action.sa_flags = SA_RESTART;  // reads and writes of the run go on
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[k], &action, nullptr);
  }
}

StopSignalScope::~StopSignalScope() {
  const std::lock_guard lock(scopes_mutex);
  if (--scopes > 0) return;
  for (size_t k = 0; k < kSignals.size(); ++k) {
    if (installed[k]) std::signal(kSignals[k], SIG_DFL);
  }
}

int stop_signal() {
  return received.load(std::memory_order_relaxed);
}

}  // namespace levin
