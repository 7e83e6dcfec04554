#include "levin/strategies/launch/launcher_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "levin/core/options/error.h"
#include "levin/core/process/stop_signal.h"

namespace levin {

namespace {

constexpr std::array kCaught{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};

std::atomic<int> pipe_end = -1;

void note_launcher_signal(int number) {
  const int saved = errno;
  const char message = static_cast<char>(number);
  (void)!::write(pipe_end.load(), &message, 1);
  errno = saved;
}

}  // namespace

LauncherSignals::LauncherSignals() {
  if (::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(std::string("launching ranks: cannot create a pipe: ") + std::strerror(errno) + ".");
  }
  pipe_end = ends_[1];
  struct sigaction action = {};
  action.sa_handler = note_launcher_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : kCaught) {
    struct sigaction current = {};
    ::sigaction(number, nullptr, &current);
    const bool ignored = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_IGN;
    if (ignored && number != SIGCHLD) continue;
    before_[number] = current;
    ::sigaction(number, &action, nullptr);
  }
}

LauncherSignals::~LauncherSignals() {
  for (auto& [number, action] : before_) {
    const bool ends_process = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL && number != SIGCHLD;
    if (stopped_ && ends_process) action.sa_handler = SIG_IGN;
    ::sigaction(number, &action, nullptr);
  }
  for (const int end : ends_) ::close(end);
}

std::optional<int> LauncherSignals::wait(std::chrono::milliseconds timeout) {
  pollfd waiting = {ends_[0], POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
  char message = 0;
  if (::read(ends_[0], &message, 1) != 1) return std::nullopt;
  stopped_ |= message != SIGCHLD;
  return message;
}

void LauncherSignals::forget_in_child() {
  for (const int number : kCaught) {
    struct sigaction current = {};
    ::sigaction(number, nullptr, &current);
    if (current.sa_handler == note_launcher_signal) std::signal(number, SIG_DFL);
  }
}

StopRequests::Kind StopRequests::note(int number, Clock::time_point now) {
  const auto [place, is_first] = first_at_.emplace(number, now);
  if (is_first) return Kind::first;
  return now - place->second < kSameRequest ? Kind::same : Kind::again;
}

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockedSignals::~BlockedSignals() {
  restore();
}

void BlockedSignals::restore() const {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace levin
