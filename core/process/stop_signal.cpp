#include "levin/core/process/stop_signal.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <mutex>

#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/process/rank_status.h"

namespace levin {

namespace {

struct Watched {
  int number;
  bool has_grace;  // nobody can repeat it
};
constexpr std::array<Watched, 4> kWatched{{{SIGINT, false}, {SIGTERM, true}, {SIGHUP, true}, {SIGUSR1, false}}};
constexpr int64_t kNanoseconds = 1'000'000'000;

// Data of the handler: lock-free, or written before the handler is installed.
struct Handled {
  std::atomic<int64_t> first_at = 0;  // nanoseconds of the monotonic clock; 0: not yet
  bool installed = false;
  bool passes_on = false;               // to the program's own handler, which decides what a repeated signal does
  struct sigaction before {};           // what the signal did before
  std::atomic<bool> has_timer = false;  // false while the timer is made or deleted
  timer_t timer = {};
  // The beginning of the message when the grace time is over, without and after a save.
  std::array<char, 128> batch_hangs = {}, end_hangs = {};
};
std::array<Handled, kWatched.size()> handled;
std::atomic<int> received{0};
std::atomic<int64_t> grace_time{0};  // nanoseconds
std::atomic<bool> repeats_count{true};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

std::mutex scopes_mutex;
int scopes = 0, write_scopes = 0;
bool ignores_pipe = false, ignores_size = false;  // since the outermost scope of write errors

void arm(const Handled& one, int64_t nanoseconds) {
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(nanoseconds / kNanoseconds);
  when.it_value.tv_nsec = static_cast<long>(nanoseconds % kNanoseconds);
  if (one.has_timer) ::timer_settime(one.timer, 0, &when, nullptr);
}

// By the default action, once the handler returns.
void end_process(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

constexpr const char* kSomethingHangs = "a data set, a message between ranks or a hook hangs";
constexpr const char* kNotSaved = ". The process ends now, without a checkpoint of this moment.";
constexpr const char* kSaved = ". The process ends now.";
constexpr const char* kGraceIsOver = " trainer.stop_grace is how long it waits.\n";

void end_of_grace(const Handled& one, int number) {
  RankStatus& status = RankStatus::instance();
  const int64_t saved_at = status.last_saved();
  const int64_t left = std::max(one.first_at.load(), saved_at) + grace_time.load() - monotonic_now();
  if (left > 0) return arm(one, left);
  const bool saved = saved_at > one.first_at.load();
  const char* const waiting = status.waiting();
  std::array<iovec, 4> parts = {};
  size_t count = 0;
  for (const char* part : {(saved ? one.end_hangs : one.batch_hangs).data(),
                           *waiting != '\0' ? waiting : kSomethingHangs, saved ? kSaved : kNotSaved, kGraceIsOver}) {
    parts[count++] = {const_cast<char*>(part), std::strlen(part)};  // NOLINT: it is only read
  }
  (void)!::writev(STDERR_FILENO, parts.data(), static_cast<int>(count));
  end_process(number);
}

void handle(Handled& one, const Watched& watched, siginfo_t* info, void* context) {
  if (info->si_code == SI_TIMER) return end_of_grace(one, watched.number);
  int none = 0;
  received.compare_exchange_strong(none, watched.number);
  RankStatus::instance().note_stop(watched.number);
  if (one.passes_on) {
    const bool takes_info = (one.before.sa_flags & SA_SIGINFO) != 0;
    return takes_info ? one.before.sa_sigaction(watched.number, info, context) : one.before.sa_handler(watched.number);
  }
  if (!repeats_count.load()) return;
  int64_t first_at = 0;
  const int64_t now = monotonic_now();
  if (one.first_at.compare_exchange_strong(first_at, now)) {
    if (watched.has_grace && grace_time.load() > 0) arm(one, grace_time.load());
    return;
  }
  const bool asks_again = now - first_at >= std::chrono::nanoseconds(kSameRequest).count();
  if (asks_again && watched.number != SIGUSR1) end_process(watched.number);  // a scheduler repeats its warning
}

extern "C" void note_stop_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  for (size_t k = 0; k < kWatched.size(); ++k) {
    if (kWatched[k].number == number) handle(handled[k], kWatched[k], info, context);
  }
  errno = saved;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == note_stop_signal;
}

bool does(const struct sigaction& action, void (*handler)(int)) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == handler;
}

void make_timer(Handled& one, int number) {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  const bool is_made = ::timer_create(CLOCK_MONOTONIC, &event, &one.timer) == 0;
  const double seconds = static_cast<double>(grace_time.load()) / kNanoseconds;
  const std::string came = "error: " + stop_signal_name(number) + " came", ago = number_text(seconds) + " s ago";
  const std::string batch_hangs = came + " " + ago + " and the running batch has not ended: ";
  const std::string end_hangs = came + ", a save after it ended " + ago + ", and the run has not ended: ";
  std::strncpy(one.batch_hangs.data(), batch_hangs.c_str(), one.batch_hangs.size() - 1);
  std::strncpy(one.end_hangs.data(), end_hangs.c_str(), one.end_hangs.size() - 1);
  one.has_timer = is_made;
}

// Also where the program has a handler of its own for a signal that asks it to end: Python's for Ctrl-C only sets a
// flag that nobody reads before the fit returns.
void install(Handled& one, const Watched& watched) {
  struct sigaction current {};
  one.installed = ::sigaction(watched.number, nullptr, &current) == 0 && !does(current, SIG_IGN);
  if (!is_ours(current)) one.before = current;
  one.passes_on = !does(one.before, SIG_DFL);
  one.installed = one.installed && (!one.passes_on || watched.number == SIGINT || watched.number == SIGTERM);
  if (!one.installed) return;
  one.first_at = 0;
  if (watched.has_grace && !one.passes_on && grace_time.load() > 0) make_timer(one, watched.number);
  struct sigaction action {};
  action.sa_sigaction = note_stop_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;  // interrupted reads and writes continue
  sigemptyset(&action.sa_mask);
  ::sigaction(watched.number, &action, nullptr);
}

void restore(const Handled& one, const Watched& watched) {
  struct sigaction current {};
  const bool replaced = ::sigaction(watched.number, nullptr, &current) != 0 || !is_ours(current);
  if (one.installed && !replaced) ::sigaction(watched.number, &one.before, nullptr);
}

// Whether it had its default action, and is ignored now.
bool ignore(int number) {
  struct sigaction current {};
  const bool is_default = ::sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
                          current.sa_handler == SIG_DFL;
  if (is_default) std::signal(number, SIG_IGN);
  return is_default;
}

}  // namespace

StopSignalScope::StopSignalScope(const StopSignalRules& rules) {
  const std::lock_guard lock(scopes_mutex);
  if (scopes++ > 0) return;
  RankStatus::instance().set_stopped(false);  // created before the handler needs it
  received = 0;
  repeats_count = !rules.launcher_decides;
  grace_time = rules.launcher_decides
                   ? 0
                   : static_cast<int64_t>(std::min(rules.grace.count(), 1e9) * static_cast<double>(kNanoseconds));
  for (size_t k = 0; k < kWatched.size(); ++k) install(handled[k], kWatched[k]);
}

StopSignalScope::~StopSignalScope() {
  const std::lock_guard lock(scopes_mutex);
  if (--scopes > 0) return;
  RankStatus::instance().note_stop(0);
  // A signal repeated by a launcher or the terminal must not end a rank that is about to report why it stopped.
  const bool stays = !repeats_count && received != 0;
  for (size_t k = 0; k < kWatched.size(); ++k) {
    if (handled[k].has_timer.exchange(false)) ::timer_delete(handled[k].timer);
    if (!stays) restore(handled[k], kWatched[k]);
  }
}

void ignore_stop_signals() {
  for (const Watched& watched : kWatched) {
    struct sigaction current {};
    const bool known = ::sigaction(watched.number, nullptr, &current) == 0;
    if (known && (does(current, SIG_DFL) || is_ours(current))) std::signal(watched.number, SIG_IGN);
  }
}

int stop_signal() {
  return received.load(std::memory_order_relaxed);
}

WriteErrorsScope::WriteErrorsScope() {
  const std::lock_guard lock(scopes_mutex);
  if (write_scopes++ > 0) return;
  ignores_pipe = ignore(SIGPIPE);
  ignores_size = ignore(SIGXFSZ);
}

WriteErrorsScope::~WriteErrorsScope() {
  const std::lock_guard lock(scopes_mutex);
  if (--write_scopes > 0) return;
  if (ignores_pipe) std::signal(SIGPIPE, SIG_DFL);
  if (ignores_size) std::signal(SIGXFSZ, SIG_DFL);
}

}  // namespace levin
