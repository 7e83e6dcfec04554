#include "levin/core/write_errors.h"

#include <csignal>

namespace levin {

namespace {

// Whether it had its default action, and is ignored now.
bool ignore(int number) {
  struct sigaction current {};
  const bool is_default = ::sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
                          current.sa_handler == SIG_DFL;
  if (is_default) std::signal(number, SIG_IGN);
  return is_default;
}

}  // namespace

WriteErrorsScope::WriteErrorsScope() : pipe_(ignore(SIGPIPE)), size_(ignore(SIGXFSZ)) {}

WriteErrorsScope::~WriteErrorsScope() {
  if (pipe_) std::signal(SIGPIPE, SIG_DFL);
  if (size_) std::signal(SIGXFSZ, SIG_DFL);
}

}  // namespace levin
