// The launcher's side of signals: handlers write into a pipe, the launcher's loop reads it; and how often the same end
// was asked for.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>

namespace levin {

/// Catches SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD while it lives. What was ignored stays ignored (nohup), here
/// and in the ranks. One at a time.
class LauncherSignals {
 public:
  LauncherSignals();
  ~LauncherSignals();
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  /// The next signal's number, within `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout);

  /// For a child process between fork and exec: no handler of the launcher's runs in it. System calls only.
  static void forget_in_child();

 private:
  std::array<int, 2> ends_ = {-1, -1};
  std::map<int, struct sigaction> before_;
};

/// The requests to end that have come so far.
class StopRequests {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind { first, same, again };  // same: within half a second, by another way

  Kind note(int number, Clock::time_point now = Clock::now());
  [[nodiscard]] bool any() const { return !first_at_.empty(); }

 private:
  std::map<int, Clock::time_point> first_at_;
};

/// Blocks all signals of this thread while it lives, so that a child made meanwhile begins without handling any.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// As they were before; for the child.
  void restore() const;

 private:
  sigset_t before_ = {};
};

}  // namespace levin
