// Signals that request a run to end: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal closed) and SIGUSR1 (what cluster
// schedulers send before they take a machine back) are recorded, and the loop checks the record after each batch. A run
// that hangs never checks: the same signal again ends the process at once, and so does the end of a grace time.
#pragma once

#include <chrono>

namespace levin {

struct StopSignalRules {
  /// How long the process may run after SIGTERM or SIGHUP, or after the end of a save (SaveInProgress) that was in
  /// progress after it; then it ends as it would without a handler. 0: no limit.
  std::chrono::duration<double> grace = std::chrono::duration<double>(0);
  /// Repeated signals are ignored and no grace time applies: a launcher, which receives the signals too, handles both.
  bool launcher_decides = false;
};

/// Records stop signals during its lifetime, on any thread; the outermost scope restores the old handlers. A SIGINT or
/// SIGTERM that the program handles itself, as Python handles Ctrl-C, is recorded and passed on to that handler, which
/// decides what a second one does. A SIGHUP or SIGUSR1 that the program handles, and ignored signals (nohup), are not
/// touched. Within half a second the same signal counts once, because a process group and a launcher may both have
/// forwarded it.
class StopSignalScope {
 public:
  explicit StopSignalScope(const StopSignalRules& rules = {});
  ~StopSignalScope();
  StopSignalScope(const StopSignalScope&) = delete;
  StopSignalScope& operator=(const StopSignalScope&) = delete;
};

/// From here to the end of the process stop signals change nothing: the run has finished, and its exit status stands.
/// Signals that the program handles itself are not touched.
void ignore_stop_signals();

/// The first stop signal since the outermost scope began; 0: none.
[[nodiscard]] int stop_signal();

/// How long after a stop signal the same one is still the same request.
inline constexpr std::chrono::milliseconds kSameRequest(500);

// Writing to a pipe without a reader, or beyond the maximum file size, ends a process by a signal (SIGPIPE, SIGXFSZ) by
// default: without message or checkpoint.

/// During its lifetime such a write fails with an error instead (EPIPE, EFBIG). Signals that the program handles itself
/// are not touched. Child processes inherit it. The outermost scope of all threads restores what was before.
class WriteErrorsScope {
 public:
  WriteErrorsScope();
  ~WriteErrorsScope();
  WriteErrorsScope(const WriteErrorsScope&) = delete;
  WriteErrorsScope& operator=(const WriteErrorsScope&) = delete;
};

}  // namespace levin
