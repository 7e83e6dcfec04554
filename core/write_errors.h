// Writing to a pipe without a reader, or beyond the maximum file size, ends a process by a signal (SIGPIPE, SIGXFSZ) by
// default: without message or checkpoint.
#pragma once

namespace levin {

/// During its lifetime such a write fails with an error instead (EPIPE, EFBIG). Signals that the program handles itself
/// are not touched. Child processes inherit it.
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
