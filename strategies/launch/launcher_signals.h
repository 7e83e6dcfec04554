// Signal handling in the launcher: handlers write to a pipe, which the launcher's loop reads; and a record of the
// requests to end.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>

namespace levin {

/// Catches SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD during its lifetime. Ignored signals stay ignored (nohup), here
/// and in the ranks. After a request to end, its destructor lets the process ignore further ones: the job has ended,
/// and its report and exit status stand. Only one may exist at a time.
class LauncherSignals {
 public:
  LauncherSignals();
  ~LauncherSignals();
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  /// The next signal's number, within `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout);

  /// For a child process between fork and exec: restores the default handlers, so that the launcher's do not run in it.
  /// Uses system calls only.
  static void forget_in_child();

 private:
  std::array<int, 2> ends_ = {-1, -1};
  bool stopped_ = false;
  std::map<int, struct sigaction> before_;
};

/// The requests to end that have been received so far.
class StopRequests {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind { first, same, again };  // same: received within half a second, through another path

  Kind note(int number, Clock::time_point now = Clock::now());
  [[nodiscard]] bool any() const { return !first_at_.empty(); }

 private:
  std::map<int, Clock::time_point> first_at_;
};

/// Blocks all signals of this thread during its lifetime, so that a child forked meanwhile begins without handling any.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// Restores the previous signal mask; for the child.
  void restore() const;

 private:
  sigset_t before_ = {};
};

}  // namespace levin
