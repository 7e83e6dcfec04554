// Signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM and SIGUSR1 (what cluster schedulers send before they take a
// machine back) are noted, and the loop looks at the note after each batch. A second Ctrl-C ends the process at once.
#pragma once

namespace levin {

/// Notes stop signals while one lives, on whichever thread; the outermost puts the old handlers back. A signal that the
/// program handles itself, or ignores (nohup), is left to it.
class StopSignalScope {
 public:
  StopSignalScope();
  ~StopSignalScope();
  StopSignalScope(const StopSignalScope&) = delete;
  StopSignalScope& operator=(const StopSignalScope&) = delete;
};

/// The first stop signal since the outermost scope began; 0: none.
[[nodiscard]] int stop_signal();

}  // namespace levin
