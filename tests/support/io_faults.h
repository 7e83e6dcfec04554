// Real faults in the I/O of real code: the N-th call that touches a folder is refused, cut short, or kills the process.
//
//   const IoFaults faults(folder.path());
//   for (int call = 1;; ++call) {
//     const IoOutcome outcome = faults.run({.call = call, .fault = IoFault::no_space}, [&] { save(folder / "a"); });
//     if (!outcome.injected) break;  // the body made fewer calls: everything was tried
//     …what must hold now
//   }
//
// The body runs in a forked child, so a kill is a real SIGKILL and the caller's LibTorch is loaded once. Linking
// levin_io_faults puts its open, write, fsync, rename … in front of libc's; another program gets them by LD_PRELOAD
// (run_program). Seen are calls through libc's functions from any library: open openat creat fopen read write pwrite
// writev ftruncate fallocate fsync fdatasync close rename renameat link unlink unlinkat remove mkdir mkdirat; calls
// that stdio makes within a FILE are not. Pass the folder as an absolute path without symbolic links.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace levin::test {

enum class IoFault {
  none,
  no_space,     // ENOSPC
  io_error,     // EIO
  quota,        // EDQUOT
  interrupted,  // EINTR
  short_write,  // a write writes half of its bytes and returns that count; other calls work
  kill,         // SIGKILL instead of the call
  kill_midway,  // SIGKILL after half of a write, or right after another call
};

struct IoPlan {
  int call = 0;  // the call to fail, from 1; 0: none
  IoFault fault = IoFault::none;
  bool lasting = false;  // the call and all later ones fail, except close, unlink and remove: a disk that stays full
};

struct IoCall {
  std::string name;  // "write"
  std::string path;  // what it acts on; for rename and link the new name
};

struct IoOutcome {
  enum class End { done, threw, killed, crashed };

  End end = End::crashed;
  std::string error;          // what() of the exception that left the body; how it crashed
  std::vector<IoCall> calls;  // all calls in order, including failed ones
  bool injected = false;      // the planned call was reached
};

class IoFaults {
 public:
  explicit IoFaults(std::string folder) : folder_(std::move(folder)) {}

  /// Forks, runs the body under the plan and waits for it. Body and caller share files, not memory. A body that takes
  /// more than a minute is killed and counts as crashed.
  [[nodiscard]] IoOutcome run(const IoPlan& plan, const std::function<void()>& body) const;

  /// Runs a program under the plan: `arguments[0]` is its path, its output is discarded, and an exit status other than
  /// 0 counts as thrown. Not for programs built with a sanitizer, whose runtime must be loaded first.
  [[nodiscard]] IoOutcome run_program(const IoPlan& plan, const std::vector<std::string>& arguments) const;

 private:
  std::string folder_;
};

}  // namespace levin::test
