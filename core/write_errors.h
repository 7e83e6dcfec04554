// Writing to a pipe that has no reader any more, or past the largest file that is allowed, ends a process by a signal
// (SIGPIPE, SIGXFSZ) unless it says otherwise: no message, no checkpoint.
#pragma once

namespace levin {

/// While one lives such a write fails like any other instead (EPIPE, EFBIG). Signals that the program handles itself
/// are left to it. Child processes inherit it.
class WriteErrorsScope {
 public:
  WriteErrorsScope();
  ~WriteErrorsScope();
  WriteErrorsScope(const WriteErrorsScope&) = delete;
  WriteErrorsScope& operator=(const WriteErrorsScope&) = delete;

 private:
  bool pipe_;
  bool size_;
};

}  // namespace levin
