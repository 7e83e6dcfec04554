// Signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal closed) and SIGUSR1 (what cluster
// schedulers send before they take a machine back) are noted, and the loop looks at the note after each batch. What
// hangs never looks: the same signal again ends the process at once, and so does the end of a grace time.
#pragma once

#include <chrono>
#include <string>

namespace levin {

struct StopSignalRules {
  /// How long after SIGTERM or SIGHUP the process may run on; then it ends as it would have without a handler. A save
  /// that is in progress is waited for. 0: no limit.
  std::chrono::duration<double> grace = std::chrono::duration<double>(0);
  /// Repeated signals are ignored and there is no grace time: a launcher, which hears the signals too, decides both.
  bool launcher_decides = false;
};

/// Notes stop signals while one lives, on whichever thread; the outermost puts the old handlers back. A signal that the
/// program handles itself, or ignores (nohup), is left to it. Within half a second the same signal counts once: a
/// process group and a launcher may both have handed it on.
class StopSignalScope {
 public:
  explicit StopSignalScope(const StopSignalRules& rules = {});
  ~StopSignalScope();
  StopSignalScope(const StopSignalScope&) = delete;
  StopSignalScope& operator=(const StopSignalScope&) = delete;
};

/// The first stop signal since the outermost scope began; 0: none.
[[nodiscard]] int stop_signal();

/// "Ctrl-C", "SIGTERM", …
[[nodiscard]] std::string stop_signal_name(int signal_number);

/// While one lives the process is saving, on whichever thread: the end of the grace time waits for it.
class HoldsGrace {
 public:
  HoldsGrace();
  ~HoldsGrace();
  HoldsGrace(const HoldsGrace&) = delete;
  HoldsGrace& operator=(const HoldsGrace&) = delete;
};

/// How long after a stop signal the same one is still the same request.
inline constexpr std::chrono::milliseconds kSameRequest(500);

}  // namespace levin
